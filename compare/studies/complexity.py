"""Cost of attention: closed forms against counted operations, saved bytes and time.

Symbols: M source and N target positions, d (or k) model width, d_q and d_v widths of a head's queries and
values, h heads. Operations are multiply-adds of matrix products.

The closed forms follow from the definition softmax(Q K^T / sqrt(d_q)) V: per head, Q K^T takes N M d_q
multiply-adds and the sum over V takes N M d_v. Vaswani et al. 2017 state the order N^2 d of a self-attention
layer (table 1), and that heads of width d/h together cost as much as one head of width d (section 3.2.2).

The other claims follow from the matrices of a layer, by counting. Projections W_Q, W_K and W_V are d x d
together over all heads of width d/h, and so is W_O (section 3.2.2): 3 d^2 or 4 d^2 weights, and 4 N d^2
operations for N positions. The products over pairs of positions, Q K^T and the sum over V, take 2 N^2 d. Both
are equal at N = 2d. A decoder over an encoded source repeats nothing of the encoder, whose self-attention has
the only term in M^2.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from compare.analysis.tables import Row, Table
from compare.benchmark.measurement import fit_power_law
from compare.studies.kit import Panel, column, draw_panels, exponent, lines_by, multiply_adds
from compare.studies.study import Claim, Settings, StudyResult, between, near
from compare.studies.tasks import transformer
from compare.system.measure import best_of
from transformer.attention import plain_attention
from transformer.model import Transformer

logger = logging.getLogger(__name__)

D, HEADS = 256, 4
CROSS_KEYS = 512
"""Source length M of the cross-attention whose target length grows."""
LAYERS, WIDTH = 2, 64
INNER = 4 * WIDTH
"""Sizes of the model that translates into two languages."""
TARGET, SOURCES = 40, (20, 40, 60, 80)
"""N, and evenly spaced values of M, of the second language."""
CPU = torch.device("cpu")


def run(settings: Settings) -> StudyResult:
    """Measure each kind over lengths, then parameters, crossing and a second language."""
    lengths = [16, 32, 64] if settings.quick else [128, 256, 512, 1024]
    rows: list[Row] = []
    for kind, shape in KINDS.items():
        logger.info(f"complexity: {kind}")
        rows += [{"attention": kind, "n": n, **measure(shape(n), quick=settings.quick)} for n in lengths]
    exponents = [fit(kind, [row for row in rows if row["attention"] == kind]) for kind in KINDS]
    logger.info("complexity: parameters, crossing, second language")
    parts = {
        "parameters": parameters(D),
        "crossing": crossing(D, HEADS, quick=settings.quick),
        "second-language": second_language(),
    }
    return StudyResult(
        method=f"""
            The toolkit's own attention, softmax(Q K^T / sqrt(d_q)) V without fused kernels, on one sentence
            in fp32; d = {D}, h = {HEADS}. Operations are multiply-adds counted by torch's counter while it
            runs, bytes are those of the tensors saved for the backward pass, each once, and time is the
            minimum of five forward passes or more. Exponents are slopes of logarithms over the lengths. The
            closed forms predict N M h (d_q + d_v) operations and 4 h (N d_q + M (d_q + d_v) + N M) bytes,
            with N M more for the mask of the decoder's self-attention.""",
        tables={
            "attention": Table("Counts beside the closed forms; n is M and N, or N where M is fixed.", rows),
            "exponents": Table(
                "Exponents in n: predicted for long n, and fitted; for bytes also predicted at these n.",
                exponents,
            ),
            **{name: table for name, (table, _) in parts.items()},
        },
        claims=[*judge(rows, exponents), *(claim for _, claims in parts.values() for claim in claims)],
        figure=draw_panels(
            *(
                Panel(
                    title=name.capitalize(),
                    x="positions n",
                    y=label,
                    lines=lines_by(rows, "attention", "n", name),
                    log="xy",
                )
                for name, label in (
                    ("operations", "multiply-adds"),
                    ("bytes", "bytes saved for the backward pass"),
                    ("seconds", "s, forward"),
                )
            )
        ),
    )


# Attention over growing lengths.


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


SINGLE = "encoder self, 1 head"
NARROW, WIDE = f"encoder self, {HEADS} heads of d/{HEADS}", f"encoder self, {HEADS} heads of d"
CROSS = f"cross, M = {CROSS_KEYS}"
KINDS: dict[str, Callable[[int], AttentionShape]] = {
    SINGLE: lambda n: AttentionShape(n, n, 1, D, D),
    NARROW: lambda n: AttentionShape(n, n, HEADS, D // HEADS, D // HEADS),
    WIDE: lambda n: AttentionShape(n, n, HEADS, D, D),
    "encoder self, 1 head, d_v = d/4": lambda n: AttentionShape(n, n, 1, D, D // 4),
    CROSS: lambda n: AttentionShape(n, CROSS_KEYS, HEADS, D // HEADS, D // HEADS),
    "decoder self": lambda n: AttentionShape(n, n, HEADS, D // HEADS, D // HEADS, causal=True),
}
"""Attention shapes by name, from the length that grows."""


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


def saved_bytes(work: Callable[[], object]) -> int:
    """Count the bytes of the tensors that ``work`` saves for its backward pass, each storage once."""
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # a reference keeps its address in use
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        result = work()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def fit(kind: str, rows: Sequence[Row]) -> Row:
    """Fit the exponents in n of one kind of attention."""
    return {
        "attention": kind,
        "predicted": 1 if kind == CROSS else 2,
        "operations_exponent": exponent(rows, "n", "operations"),
        "bytes_exponent": exponent(rows, "n", "bytes"),
        "seconds_exponent": exponent(rows, "n", "seconds"),
        "bytes_exponent_predicted": exponent(rows, "n", "bytes_predicted"),
    }


def judge(rows: Sequence[Row], exponents: Sequence[Row]) -> list[Claim]:
    """Compare the claims about attention with its tables."""
    longest = {row["attention"]: row["operations"] for row in rows}
    return [
        *(
            near(
                f"{name.capitalize()} equal the closed form in all {len(rows)} rows: largest relative error",
                max(abs(row[name] / row[f"{name}_predicted"] - 1) for row in rows),
                0,
            )
            for name in ("operations", "bytes")
        ),
        near(
            "Heads of width d/h cost as much as one head: operations, ratio",
            longest[NARROW] / longest[SINGLE],
            1,
        ),
        near("h heads of width d cost h-fold: operations, ratio", longest[WIDE] / longest[SINGLE], HEADS),
        *(
            near(
                f"{row['attention']}: {growth} as n^{row['predicted']}: exponent",
                row[f"{name}_exponent"],
                row["predicted"],
                tolerance,
            )
            for row in exponents
            for growth, name, tolerance in (
                ("operations grow", "operations", 1e-9),
                ("time grows", "seconds", 0.3),
            )
        ),
    ]


# Parameters, crossing of N^2 d and N d^2, a second target language.


Part = tuple[Table, list[Claim]]
"""A table and the claims about it."""


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
    model = transformer(d, 1, num_heads=heads, head_size=head_size)(1, 1)
    attention = model.encoder.layers[0].attention
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
    counted, timed = (_crossing(rows, cost) for cost in ("operations", "seconds"))
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


def _crossing(rows: Sequence[Row], cost: str) -> float:
    """Compute the n at which both parts cost the same, by the power law fitted to their ratio."""
    ratios = [row[f"pairs_{cost}"] / row[f"projections_{cost}"] for row in rows]
    law = fit_power_law(column(rows, "n"), ratios)
    return float(law.factor ** (-1 / law.exponent))


def second_language() -> Part:
    """Measure the cost of a second decoder over the same encoded source."""
    model = transformer(WIDTH, LAYERS)(10, 10)
    rows = [_translate(model, source) for source in SOURCES]
    second = column(rows, "second_language")
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
