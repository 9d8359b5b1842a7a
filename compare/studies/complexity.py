"""Cost of attention: closed forms against counted operations, saved bytes and time.

Symbols: M source and N target positions, d (or k) model width, d_q and d_v widths of a head's queries and
values, h heads. Operations are multiply-adds of matrix products.

The closed forms follow from the definition softmax(Q K^T / sqrt(d_q)) V: per head, Q K^T takes N M d_q
multiply-adds and the sum over V takes N M d_v. Vaswani et al. 2017 state the order N^2 d of a self-attention
layer (table 1), and that heads of width d/h together cost as much as one head of width d (section 3.2.2).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from compare.analysis.tables import Row, Table
from compare.benchmark.measurement import fit_power_law
from compare.report.plots import make_panels
from compare.studies.figures import draw_lines, multiply_adds, saved_bytes
from compare.studies.study import Claim, Settings, StudyResult, between, near
from compare.system.measure import best_of
from transformer.attention import plain_attention
from transformer.config import TransformerConfig
from transformer.model import Transformer

# Second half of the ``complexity`` study: parameters, crossing of N^2 d and N d^2, a second target
# language.
#
# The claims follow from the matrices of a layer, by counting. Projections W_Q, W_K and W_V are d x d together
# over all heads of width d/h, and so is W_O (Vaswani et al. 2017, section 3.2.2): 3 d^2 or 4 d^2 weights, and
# 4 N d^2 operations for N positions. The products over pairs of positions, Q K^T and the sum over V, take
# 2 N^2 d. Both are equal at N = 2d. A decoder over an encoded source repeats nothing of the encoder, whose
# self-attention has the only term in M^2.


Part = tuple[Table, list[Claim]]
"""A table and the claims about it."""
LAYERS, WIDTH, INNER = 2, 64, 256
"""Sizes of the model that translates into two languages."""
CPU = torch.device("cpu")
TARGET, SOURCES = 40, (20, 40, 60, 80)
"""N, and evenly spaced values of M, of the second language."""


def parameters(d: int) -> Part:
    """Count the weights of one attention for several numbers and widths of heads."""
    rows = [_weigh(d, heads, size) for heads, size in ((1, None), (2, None), (4, None), (8, None), (4, d))]
    *split, wide = rows
    claims = [
        near(
            f"{matrices} {factor} d^2 weights, for any number of heads: largest relative error",
            max(abs(row[name] / (factor * d * d) - 1) for row in split),
            0,
        )
        for matrices, name, factor in (("W_Q, W_K, W_V:", "weights", 3), ("With W_O:", "with_W_O", 4))
    ]
    claims.append(
        near(
            "Heads of width d need h times as many: with W_O over 4 d^2",
            wide["with_W_O"] / (4 * d * d),
            wide["heads"],
        )
    )
    return Table(f"Matrices of one self-attention, d = {d}; biases are not counted.", rows), claims


def _weigh(d: int, heads: int, head_size: int | None) -> Row:
    """Count the weights of a self-attention, without and with its output matrix."""
    config = TransformerConfig(
        d_model=d, num_heads=heads, head_size=head_size, encoder_layers=1, decoder_layers=1, ffn_size=1
    )
    attention = Transformer(config, 1, 1).encoder.layers[0].attention
    matrices = {name: part.numel() for name, part in attention.named_parameters() if part.dim() == 2}
    weights = sum(matrices.values())
    return {
        "heads": heads,
        "head_size": head_size or d // heads,
        "weights": weights - matrices["project_out.weight"],
        "with_W_O": weights,
        "3 d^2": 3 * d * d,
        "4 d^2": 4 * d * d,
    }


def crossing(d: int, heads: int, *, quick: bool) -> Part:
    """Find the length from which the products over pairs cost more than the projections."""
    lengths = [16, 32] if quick else [64, 128, 256, 512, 1024]
    rows = [_compare(n, d, heads, quick=quick) for n in lengths]
    counted = _crossing(rows, "pairs_operations", "projections_operations")
    timed = _crossing(rows, "pairs_seconds", "projections_seconds")
    claims = [
        near(
            "N^2 d overtakes N d^2 at N = 2d, as a layer has 2 N^2 d and 4 N d^2: by operations, N/d",
            counted / d,
            2,
            1e-9,
        ),
        between("The same by time, of the order of d: N/d", timed / d, 0.25, 4),
    ]
    caption = (
        f"One self-attention of {heads} heads, d = {d}: products over pairs of positions (2 N^2 d) against "
        f"projections (4 N d^2). Equal at N = {counted:,.0f} by operations, {timed:,.0f} by time."
    )
    return Table(caption, rows), claims


def _compare(n: int, d: int, heads: int, *, quick: bool) -> Row:
    """Measure operations and time of both parts of a self-attention over n positions."""
    x, into, out = torch.randn(n, d), torch.randn(d, 3 * d), torch.randn(d, d)
    split = torch.randn(1, heads, n, d // heads)
    work = {
        "pairs": lambda: plain_attention(split, split, split, None, False, 0.0)[0],
        "projections": lambda: (x @ into, x @ out),
    }
    row: Row = {"n": n}
    with torch.inference_mode():
        for name, part in work.items():
            row[f"{name}_operations"] = multiply_adds(part)
            row[f"{name}_seconds"] = best_of(part, CPU, repeats=5, seconds=0 if quick else 0.5)
    return row


def _crossing(rows: list[Row], left: str, right: str) -> float:
    """Compute the n at which ``left`` equals ``right`` by the power law fitted to their ratio."""
    law = fit_power_law([row["n"] for row in rows], [row[left] / row[right] for row in rows])
    return float(law.factor ** (-1 / law.exponent))


def second_language() -> Part:
    """Measure the cost of a second decoder over the same encoded source."""
    config = TransformerConfig(
        d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, ffn_size=INNER, dropout=0.0
    )
    model = Transformer(config, 10, 10)
    rows = [_translate(model, source) for source in SOURCES]
    second = [row["second_language"] for row in rows]
    bends = [a - 2 * b + c for a, b, c in zip(second, second[1:], second[2:], strict=False)]
    claims = [
        near(
            "A second language costs only its decoder, O(M N k + N^2 k) and projections: relative error",
            max(abs(row["second_language"] / row["second_predicted"] - 1) for row in rows),
            0,
        ),
        near("It has no M^2 k: second difference of its operations over M", max(map(abs, bends)), 0),
    ]
    caption = (
        f"Operations of {LAYERS} + {LAYERS} layers, k = {WIDTH}, feed-forward {INNER}, N = {TARGET}: the "
        "encoder, which runs once, and each decoder over its output. pairs = layers (2 M N k + 2 N^2 k) "
        "grows with products of lengths; the rest are projections and feed-forward layers."
    )
    return Table(caption, rows), claims


def _translate(model: Transformer, m: int) -> Row:
    """Count the operations of encoder and decoder for M = m, beside their closed forms."""
    k, n = WIDTH, TARGET
    src, mask = torch.zeros(1, m, dtype=torch.long), torch.ones(1, m, dtype=torch.bool)
    tgt = torch.zeros(1, n, dtype=torch.long)
    with torch.inference_mode():
        encoder = multiply_adds(lambda: model.encoder(src, mask))
        whole = multiply_adds(lambda: model.features(src, mask, tgt))
    inner = 2 * k * INNER
    pairs = LAYERS * (2 * m * n * k + 2 * n * n * k)
    return {
        "M": m,
        "encoder": encoder,
        "encoder_predicted": LAYERS * (m * (4 * k * k + inner) + 2 * m * m * k),
        "second_language": whole - encoder,
        "second_predicted": LAYERS * (n * (4 * k * k + inner) + (n + m) * 2 * k * k) + pairs,
        "pairs": pairs,
    }


logger = logging.getLogger(__name__)

D, HEADS = 256, 4
CROSS_KEYS = 512
"""Source length M of the cross-attention whose target length grows."""
METHOD = f"""\
The toolkit's own attention, softmax(Q K^T / sqrt(d_q)) V without fused kernels, on one sentence in fp32;
d = {D}, h = {HEADS}. Operations are multiply-adds counted by torch's counter while it runs, bytes are those
of the tensors saved for the backward pass, each once, and time is the minimum of five forward passes or
more. Exponents are slopes of logarithms over the lengths. The closed forms predict N M h (d_q + d_v)
operations and 4 h (N d_q + M (d_q + d_v) + N M) bytes, with N M more for the mask of the decoder's
self-attention."""


class AttentionShape(NamedTuple):
    """Sizes of one attention: lengths N and M, number of heads, widths of a head's queries and values."""

    queries: int
    keys: int
    heads: int
    key_size: int
    value_size: int
    causal: bool = False

    @property
    def operations(self) -> int:
        """Multiply-adds by the closed form."""
        return self.heads * self.queries * self.keys * (self.key_size + self.value_size)

    @property
    def bytes(self) -> int:
        """Bytes saved for the backward pass by the closed form: queries, keys, values, weights, mask."""
        pairs = self.queries * self.keys
        sequences = self.queries * self.key_size + self.keys * (self.key_size + self.value_size)
        return 4 * self.heads * (sequences + pairs) + (pairs if self.causal else 0)


KINDS: dict[str, Callable[[int], AttentionShape]] = {
    "encoder self, 1 head": lambda n: AttentionShape(n, n, 1, D, D),
    f"encoder self, {HEADS} heads of d/{HEADS}": lambda n: AttentionShape(
        n, n, HEADS, D // HEADS, D // HEADS
    ),
    f"encoder self, {HEADS} heads of d": lambda n: AttentionShape(n, n, HEADS, D, D),
    "encoder self, 1 head, d_v = d/4": lambda n: AttentionShape(n, n, 1, D, D // 4),
    f"cross, M = {CROSS_KEYS}": lambda n: AttentionShape(n, CROSS_KEYS, HEADS, D // HEADS, D // HEADS),
    "decoder self": lambda n: AttentionShape(n, n, HEADS, D // HEADS, D // HEADS, causal=True),
}
"""Attention shapes by name, from the length that grows."""
SINGLE, NARROW, WIDE, _, CROSS, _ = KINDS


def run(settings: Settings) -> StudyResult:
    """Measure each kind over lengths, then parameters, crossing and a second language."""
    lengths = [16, 32, 64] if settings.quick else [128, 256, 512, 1024]
    rows = []
    for kind, shape in KINDS.items():
        logger.info(f"complexity: {kind}")
        rows += [{"attention": kind, "n": n, **measure(shape(n), quick=settings.quick)} for n in lengths]
    exponents = [fit(kind, [row for row in rows if row["attention"] == kind]) for kind in KINDS]
    logger.info("complexity: parameters, crossing, second language")
    models = {
        "parameters": parameters(D),
        "crossing": crossing(D, HEADS, quick=settings.quick),
        "second-language": second_language(),
    }
    return StudyResult(
        method=METHOD,
        tables={
            "attention": Table("Counts beside the closed forms; n is M and N, or N where M is fixed.", rows),
            "exponents": Table(
                "Exponents in n: predicted for long n, and fitted; for bytes also predicted at these n.",
                exponents,
            ),
            **{name: table for name, (table, _) in models.items()},
        },
        claims=[*judge(rows, exponents), *(claim for _, claims in models.values() for claim in claims)],
        figure=plot(rows),
    )


def plot(rows: list[Row]) -> Figure:
    """Plot operations, bytes and time of each kind over the lengths."""
    figure, panels = make_panels(3)
    for axes, column, unit, label in (
        (panels[0], "operations", 1e-6, "million multiply-adds"),
        (panels[1], "bytes", 2**-20, "MiB saved for the backward pass"),
        (panels[2], "seconds", 1e3, "ms, forward"),
    ):
        of_kind = {kind: [row for row in rows if row["attention"] == kind] for kind in KINDS}
        lines = {
            kind: ([row["n"] for row in kind_rows], [row[column] * unit for row in kind_rows])
            for kind, kind_rows in of_kind.items()
        }
        draw_lines(axes, lines, title=column.capitalize(), x="positions n", y=label, log="xy")
    return figure


def measure(shape: AttentionShape, *, quick: bool) -> Row:
    """Measure operations, bytes and time of an attention, beside its closed forms."""
    queries, keys, values = (
        torch.randn(1, shape.heads, length, size, requires_grad=True)
        for length, size in (
            (shape.queries, shape.key_size),
            (shape.keys, shape.key_size),
            (shape.keys, shape.value_size),
        )
    )

    def attend() -> Tensor:
        return plain_attention(queries, keys, values, None, shape.causal, 0.0)[0]

    operations, saved = multiply_adds(attend), saved_bytes(attend)
    with torch.inference_mode():
        seconds = best_of(attend, CPU, repeats=5, seconds=0 if quick else 1)
    return {
        "operations": operations,
        "operations_predicted": shape.operations,
        "bytes": saved,
        "bytes_predicted": shape.bytes,
        "seconds": seconds,
    }


def fit(kind: str, rows: list[Row]) -> Row:
    """Fit the exponents in n of one kind of attention."""
    lengths = [row["n"] for row in rows]
    fitted = {
        name: fit_power_law(lengths, [row[name] for row in rows]).exponent
        for name in ("operations", "bytes", "seconds", "bytes_predicted")
    }
    return {
        "attention": kind,
        "predicted": 1 if kind == CROSS else 2,
        "operations_exponent": fitted["operations"],
        "bytes_exponent": fitted["bytes"],
        "seconds_exponent": fitted["seconds"],
        "bytes_exponent_predicted": fitted["bytes_predicted"],
    }


def judge(rows: list[Row], exponents: list[Row]) -> list[Claim]:
    """Compare the claims with the tables."""
    last = {row["attention"]: row for row in rows}  # at the greatest length
    claims = [
        near(
            f"{quantity} equal the closed form in all {len(rows)} rows: largest relative error",
            max(abs(row[name] / row[f"{name}_predicted"] - 1) for row in rows),
            0,
        )
        for quantity, name in (("Operations", "operations"), ("Bytes", "bytes"))
    ]
    claims += [
        near(
            "Heads of width d/h cost as much as one head: operations, ratio", _ratio(last, NARROW, SINGLE), 1
        ),
        near("h heads of width d cost h-fold: operations, ratio", _ratio(last, WIDE, SINGLE), HEADS),
    ]
    for row in exponents:
        order = row["predicted"]
        for growth, column, tolerance in (
            ("operations grow", "operations", 1e-9),
            ("time grows", "seconds", 0.3),
        ):
            text = f"{row['attention']}: {growth} as n^{order}: exponent"
            claims.append(near(text, row[f"{column}_exponent"], order, tolerance))
    return claims


def _ratio(rows: dict[str, Row], kind: str, other: str) -> float:
    return float(rows[kind]["operations"] / rows[other]["operations"])
