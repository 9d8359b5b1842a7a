"""What the scale of the scores makes of the softmax: the second half of the ``scaling`` study.

Shapes: B queries, K keys each.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from compare.analysis.table import Row
from compare.benchmark.growth import exponent
from compare.studies.measurement import draw
from compare.studies.study import Claim, near

SCALES: dict[str, Callable[[int], float]] = {
    "1": lambda d: 1.0,
    "1/sqrt(d)": lambda d: d**-0.5,
    "1/d": lambda d: 1.0 / d,
}
"""What q . k is multiplied by."""
KEYS = 64
"""Keys of a softmax."""
LARGE = 64
"""The d from which unscaled scores are taken to be far into saturation."""


def measure_softmax(d: int, rows: int) -> Row:
    """Entropy and gradient of the softmax over KEYS scores, under each scale."""
    scores = torch.einsum("bd,bkd->bk", draw(rows, d), draw(rows, KEYS, d))
    found: Row = {"d": d}
    for name, scale in SCALES.items():
        weights = (scores * scale(d)).softmax(1)
        found[f"entropy at {name}"] = float(entropy(weights).mean())
        found[f"gradient at {name}"] = float(jacobian_norm(weights).mean())
    return found


def entropy(weights: Tensor) -> Tensor:
    """The entropy in nats of each row of weights (B, K); returns (B,)."""
    found: Tensor = torch.special.entr(weights).sum(1)
    return found


def jacobian_norm(weights: Tensor) -> Tensor:
    """The Frobenius norm of diag(p) - p p^T for each row p of weights (B, K); returns (B,)."""
    second, third = weights.pow(2).sum(1), weights.pow(3).sum(1)
    return (second - 2 * third + second**2).clamp(min=0).sqrt()


def judge_softmax(rows: list[Row]) -> list[Claim]:
    """What the notes say of entropy and gradient, against the table."""
    first, last = rows[0], rows[-1]
    large = [row for row in rows if row["d"] >= LARGE]
    claims = []
    for what in ("entropy", "gradient"):
        claims += [
            near(
                f"Times 1/sqrt(d), the softmax' {what} at d = {last['d']} is that at d = {first['d']}: ratio",
                last[f"{what} at 1/sqrt(d)"] / first[f"{what} at 1/sqrt(d)"],
                1,
                0.15,
            ),
            near(
                f"Unscaled, it saturates: {what} falls as 1/sqrt(d), from d = {LARGE} on: exponent",
                exponent([row["d"] for row in large], [row[f"{what} at 1"] for row in large]),
                -0.5,
                0.15,
            ),
        ]
    return claims
