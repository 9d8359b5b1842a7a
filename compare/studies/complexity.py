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

from compare.analysis.table import Row, Table
from compare.benchmark.growth import fit_power_law
from compare.report.plots.style import make_panels
from compare.studies.complexity_models import crossing, parameters, second_language
from compare.studies.figures import draw_lines
from compare.studies.measurement import multiply_adds, saved_bytes
from compare.studies.study import Claim, Settings, StudyResult, near
from compare.system.timing import best_of
from transformer.attention import plain_attention

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
CPU = torch.device("cpu")


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
