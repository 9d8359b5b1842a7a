"""Effect of the scores' scale on the softmax: the second half of the ``scaling`` study.

Vaswani et al. 2017 (section 3.2.1) suspect that large unscaled products push the softmax into regions of
small gradients. The exponents follow from scores of variance d: in the limit the two largest of the scores,
whose gap grows as sqrt(d), are close enough to share the weight with a probability that falls as 1/sqrt(d).

Shapes: B queries, K keys each.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from compare.analysis.table import Row
from compare.benchmark.growth import fit_power_law
from compare.studies.measurement import draw
from compare.studies.study import Claim, near

SCALES: dict[str, Callable[[int], float]] = {
    "1": lambda d: 1.0,
    "1/sqrt(d)": lambda d: d**-0.5,
    "1/d": lambda d: 1.0 / d,
}
"""Factors of q . k, as functions of d."""
KEYS = 64
"""Number of keys of each softmax."""
SATURATED = 64
"""Smallest d at which unscaled scores are taken to saturate the softmax."""


def measure_softmax(d: int, rows: int) -> Row:
    """Measure entropy and gradient of the softmax over ``KEYS`` scores, for each scale."""
    scores = torch.einsum("bd,bkd->bk", draw(rows, d), draw(rows, KEYS, d))
    row: Row = {"d": d}
    for name, scale in SCALES.items():
        weights = (scores * scale(d)).softmax(1)
        row[f"entropy at {name}"] = float(entropy(weights).mean())
        row[f"gradient at {name}"] = float(jacobian_norm(weights).mean())
    return row


def entropy(weights: Tensor) -> Tensor:
    """Compute the entropy (B,) in nats of each row of weights (B, K)."""
    entropies: Tensor = torch.special.entr(weights).sum(1)
    return entropies


def jacobian_norm(weights: Tensor) -> Tensor:
    """Compute the Frobenius norm (B,) of diag(p) - p p^T for each row p of weights (B, K)."""
    second, third = weights.pow(2).sum(1), weights.pow(3).sum(1)
    return (second - 2 * third + second**2).clamp(min=0).sqrt()


def judge_softmax(rows: list[Row]) -> list[Claim]:
    """Compare the claims about entropy and gradient with the table."""
    first, last = rows[0], rows[-1]
    saturated = [row for row in rows if row["d"] >= SATURATED]
    claims = []
    for quantity in ("entropy", "gradient"):
        claims += [
            near(
                f"Times 1/sqrt(d), {quantity} of the softmax at d = {last['d']} over d = {first['d']}: ratio",
                last[f"{quantity} at 1/sqrt(d)"] / first[f"{quantity} at 1/sqrt(d)"],
                1,
                0.15,
            ),
            near(
                f"Unscaled, it saturates: {quantity} falls as 1/sqrt(d), from d = {SATURATED} on: exponent",
                fit_power_law(
                    [row["d"] for row in saturated], [row[f"{quantity} at 1"] for row in saturated]
                ).exponent,
                -0.5,
                0.15,
            ),
        ]
    return claims
