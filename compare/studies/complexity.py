"""What attention costs: closed forms against counted operations, kept bytes and time.

Letters of the notes: M source and N target positions, d (or k) model width, d_q and d_v widths of a head's
queries and values, h heads. Operations are multiply-adds of matrix products.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from compare.analysis.table import Row, Table
from compare.benchmark.growth import exponent
from compare.studies.complexity_models import crossing, parameters, second_language
from compare.studies.figures import draw_lines, make_figure
from compare.studies.measurement import best_seconds, kept_bytes, multiply_adds
from compare.studies.study import Claim, Settings, StudyResult, near
from transformer.attention import plain_attention

logger = logging.getLogger(__name__)

D, HEADS = 256, 4
CROSS_KEYS = 512
"""Source length M of the cross-attention whose target length grows."""
METHOD = f"""\
The toolkit's own attention, softmax(Q K^T / sqrt(d_q)) V written out, on one sentence in fp32; d = {D}, h =
{HEADS}. Operations are multiply-adds counted by torch's counter while it runs, bytes are those of the
tensors kept for the backward pass, each once, and time is the least of five forward passes or more.
Exponents are slopes of logarithms over the lengths. What the closed forms say stands beside each: N M h
(d_q + d_v) operations and 4 h (N d_q + M (d_q + d_v) + N M) bytes, with N M more for the mask of the
decoder's self-attention."""


class AttentionShape(NamedTuple):
    """One attention: its lengths N and M, its heads, and how wide the queries and the values of each are."""

    queries: int
    keys: int
    heads: int
    key_size: int
    value_size: int
    causal: bool = False

    @property
    def operations(self) -> int:
        """The closed form of its multiply-adds."""
        return self.heads * self.queries * self.keys * (self.key_size + self.value_size)

    @property
    def bytes(self) -> int:
        """The closed form of what it keeps for the backward pass: queries, keys, values, weights, mask."""
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
"""The attentions of the notes, by the length that grows."""
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
            "attention": Table("Counted beside the closed form; n is M and N, or N where M is fixed.", rows),
            "exponents": Table(
                "Growth with n: as predicted for long n, and as fitted; of bytes at these n too.", exponents
            ),
            **{name: table for name, (table, _) in models.items()},
        },
        claims=[*judge(rows, exponents), *(claim for _, claims in models.values() for claim in claims)],
        figure=plot(rows),
    )


def plot(rows: list[Row]) -> Figure:
    """Operations, bytes and time of each kind over lengths."""
    figure, panels = make_figure(3)
    for axes, column, unit, label in (
        (panels[0], "operations", 1e-6, "million multiply-adds"),
        (panels[1], "bytes", 2**-20, "MiB kept for the backward pass"),
        (panels[2], "seconds", 1e3, "ms, forward"),
    ):
        of_kind = {kind: [row for row in rows if row["attention"] == kind] for kind in KINDS}
        lines = {
            kind: ([row["n"] for row in found], [row[column] * unit for row in found])
            for kind, found in of_kind.items()
        }
        draw_lines(axes, lines, title=column.capitalize(), x="positions n", y=label, log="xy")
    return figure


def measure(shape: AttentionShape, *, quick: bool) -> Row:
    """Operations, bytes and time of an attention, beside its closed forms."""
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

    operations, held = multiply_adds(attend), kept_bytes(attend)
    with torch.inference_mode():
        seconds = best_seconds(attend, at_least=0 if quick else 1)
    return {
        "operations": operations,
        "operations_predicted": shape.operations,
        "bytes": held,
        "bytes_predicted": shape.bytes,
        "seconds": seconds,
    }


def fit(kind: str, rows: list[Row]) -> Row:
    """The exponents in n of one kind of attention."""
    lengths = [row["n"] for row in rows]
    fitted = {
        name: exponent(lengths, [row[name] for row in rows]) for name in ("operations", "bytes", "seconds")
    }
    return {
        "attention": kind,
        "predicted": 1 if kind == CROSS else 2,
        **{f"{name}_exponent": value for name, value in fitted.items()},
        "bytes_exponent_predicted": exponent(lengths, [row["bytes_predicted"] for row in rows]),
    }


def judge(rows: list[Row], exponents: list[Row]) -> list[Claim]:
    """What the notes say, against the tables."""
    last = {row["attention"]: row for row in rows}  # at the greatest length
    claims = [
        near(
            f"{what} are those of the closed form in all {len(rows)} rows: largest share off",
            max(abs(row[name] / row[f"{name}_predicted"] - 1) for row in rows),
            0,
        )
        for what, name in (("Operations", "operations"), ("Bytes", "bytes"))
    ]
    claims += [
        near(
            "Heads of width d/h cost what one head costs: operations, ratio", _ratio(last, NARROW, SINGLE), 1
        ),
        near("h heads of width d cost h-fold: operations, ratio", _ratio(last, WIDE, SINGLE), HEADS),
    ]
    for row in exponents:
        order = row["predicted"]
        claims.append(
            near(
                f"{row['attention']}: operations grow as n^{order}: exponent",
                row["operations_exponent"],
                order,
                1e-9,
            )
        )
        claims.append(
            near(
                f"{row['attention']}: time grows as n^{order}: exponent", row["seconds_exponent"], order, 0.3
            )
        )
    return claims


def _ratio(rows: dict[str, Row], kind: str, other: str) -> float:
    return float(rows[kind]["operations"] / rows[other]["operations"])
