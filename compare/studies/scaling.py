"""Scaling of scores by 1/sqrt(d): mean and variance of q . k, and their effect on the softmax.

Vaswani et al. 2017 (section 3.2.1): for independent components of mean 0 and variance 1, q . k has mean 0 and
variance d. For N(mu, sigma^2 I) the d products q_i k_i are independent with mean mu_i^2 and variance
E[q_i^2] E[k_i^2] - mu_i^4 = sigma^4 + 2 sigma^2 mu_i^2; their sums are the formulas tested here. The answer
to a lecture worksheet (University of California, Berkeley) has a factor d too many in the second term of the
variance, 2 d sigma^2 mu.mu, although mu.mu is a sum over d components already. The study measures both.
"""

import logging
import math
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from compare.analysis.tables import Row, Table
from compare.benchmark.measurement import fit_power_law
from compare.report.plots import make_panels
from compare.studies.figures import draw, draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most, near

# Effect of the scores' scale on the softmax: the second half of the ``scaling`` study.
#
# Vaswani et al. 2017 (section 3.2.1) suspect that large unscaled products push the softmax into regions of
# small gradients. The exponents follow from scores of variance d: in the limit the two largest of the scores,
# whose gap grows as sqrt(d), are close enough to share the weight with a probability that falls as 1/sqrt(d).
#
# Shapes: B queries, K keys each.


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


logger = logging.getLogger(__name__)

MISPRINT = 10.0
"""Standard errors by which the misprinted variance must miss the measured one wherever mu is not 0."""
NORMALS = ((0.0, 1.0), (0.5, 1.0), (0.25, 1.5))
"""(mu, sigma) of each entry of q and k."""
CHUNK = 2_000
"""Products drawn at a time."""
ERRORS = 4.0
"""Tolerance in standard errors; one of some dozen samples exceeds it in 1 of 500 seeds."""
METHOD = """\
q and k are drawn from N(mu, sigma^2 I), all entries of the vector mu being equal, in float64. The variance of
their product is d sigma^4 + 2 sigma^2 mu.mu; a lecture worksheet misprints its second term as
2 d sigma^2 mu.mu, which is measured beside it. Each mean and
each variance is of {samples:,} products; its standard error comes from the same sample. Entropy and
gradient are means over {rows:,} queries drawn from N(0, I) against {keys} keys: the gradient is the
Frobenius norm of the softmax's Jacobian, sqrt(sum p^2 - 2 sum p^3 + (sum p^2)^2), by which the gradient of
any loss is multiplied. An exponent is the slope of logarithms over d."""


def run(settings: Settings) -> StudyResult:
    """Measure moments, scales and softmax over d."""
    sizes = [4, 16, 64, 256] if settings.quick else [4, 16, 64, 256, 1024]
    samples, rows = (2_000, 200) if settings.quick else (40_000, 2_000)
    logger.info(f"scaling: {samples:,} products for each of {len(sizes) * len(NORMALS)} settings")
    moments = [measure_moments(d, mu, sigma, samples) for mu, sigma in NORMALS for d in sizes]
    logger.info("scaling: entropy and gradient of the softmax")
    softmax = [measure_softmax(d, rows) for d in sizes]
    scales = [fit_exponents(name, moments) for name in SCALES]
    return StudyResult(
        method=METHOD.format(samples=samples, rows=rows, keys=KEYS),
        tables={
            "moments": Table("E[q.k] = mu.mu and Var[q.k] = d sigma^4 + 2 sigma^2 mu.mu.", moments),
            "scales": Table(
                "Exponents in d of mean and variance of the scaled score, where mu is 0.5.", scales
            ),
            "softmax": Table(
                "Softmax over scores of queries and keys from N(0, I), by the factor of the scores.", softmax
            ),
        },
        claims=[*judge(moments, scales), *judge_softmax(softmax)],
        figure=plot(moments, softmax),
    )


def plot(moments: list[Row], softmax: list[Row]) -> Figure:
    """Plot variance, entropy and gradient over d, for each scale."""
    figure, panels = make_panels(3)
    sizes = [row["d"] for row in softmax]
    unit_normal = _unit_normal(moments)
    lines = {
        f"times {name}": (sizes, [row["variance"] * scale(row["d"]) ** 2 for row in unit_normal])
        for name, scale in SCALES.items()
    }
    draw_lines(
        panels[0],
        lines,
        predicted={"d": (sizes, sizes), "1": (sizes, [1] * len(sizes))},
        title="Variance of the score, q, k ~ N(0, I)",
        x="d",
        y="variance",
        log="xy",
    )
    for axes, quantity, label in (
        (panels[1], "entropy", "nats"),
        (panels[2], "gradient", "norm of the Jacobian"),
    ):
        lines = {
            f"times {name}": (sizes, [row[f"{quantity} at {name}"] for row in softmax]) for name in SCALES
        }
        draw_lines(axes, lines, title=f"Softmax of {KEYS} scores: {quantity}", x="d", y=label, log="xy")
    return figure


def _unit_normal(moments: list[Row]) -> list[Row]:
    """Select the rows of q, k ~ N(0, I)."""
    return [row for row in moments if (row["mu"], row["sigma"]) == NORMALS[0]]


def measure_moments(d: int, mu: float, sigma: float, samples: int) -> Row:
    """Measure mean and variance of q . k over ``samples`` draws, with their standard errors."""
    products = torch.cat([_products(d, mu, sigma) for _ in range(samples // CHUNK)])
    mean, variance = float(products.mean()), float(products.var())
    fourth = float((products - mean).pow(4).mean())
    return {
        "mu": mu,
        "sigma": sigma,
        "d": d,
        "mean": mean,
        "mean_predicted": d * mu**2,
        "mean_error": math.sqrt(variance / samples),
        "variance": variance,
        "variance_predicted": d * sigma**4 + 2 * sigma**2 * d * mu**2,
        "variance_error": math.sqrt((fourth - variance**2) / samples),
    }


def _products(d: int, mu: float, sigma: float) -> Tensor:
    """Draw ``CHUNK`` products q . k."""
    queries, keys = (mu + sigma * draw(CHUNK, d) for _ in range(2))
    return (queries * keys).sum(1)


def fit_exponents(name: str, moments: list[Row]) -> Row:
    """Fit the exponents in d of mean and variance of the score scaled by SCALES[name], where mu is not 0."""
    rows = [row for row in moments if (row["mu"], row["sigma"]) == NORMALS[1]]
    sizes, scales = [row["d"] for row in rows], [SCALES[name](row["d"]) for row in rows]
    means = [row["mean"] * scale for row, scale in zip(rows, scales, strict=True)]
    variances = [row["variance"] * scale**2 for row, scale in zip(rows, scales, strict=True)]
    return {
        "scale": name,
        "exponent_of_mean": fit_power_law(sizes, means).exponent,
        "exponent_of_variance": fit_power_law(sizes, variances).exponent,
    }


def judge(moments: list[Row], scales: list[Row]) -> list[Claim]:
    """Compare the claims about mean and variance with the tables."""
    by_scale = {row["scale"]: row for row in scales}
    squares = [SCALES["1/sqrt(d)"](row["d"]) ** 2 for row in _unit_normal(moments)]
    deviations = [
        abs(square * row["variance"] - 1) / (square * row["variance_error"])
        for square, row in zip(squares, _unit_normal(moments), strict=True)
    ]
    count = len(moments)
    return [
        at_most(
            f"E[q.k] is mu.mu: largest of {count} deviations, in standard errors",
            _largest_deviation(moments, "mean"),
            ERRORS,
        ),
        at_most(
            f"Var[q.k] is d sigma^4 + 2 sigma^2 mu.mu: largest of {count} deviations, in standard errors",
            _largest_deviation(moments, "variance"),
            ERRORS,
        ),
        at_least(
            "It is not d sigma^4 + 2 d sigma^2 mu.mu, a misprint: smallest deviation, in standard errors",
            min(_misprint_deviation(row) for row in moments if row["mu"]),
            MISPRINT,
        ),
        at_most(
            "Times 1/sqrt(d), Var is 1 at every d, for q, k ~ N(0, I): largest deviation, in standard errors",
            max(deviations),
            ERRORS,
        ),
        *(
            near(f"{text}: exponent", by_scale[scale][f"exponent_of_{moment}"], exponent_of_d, 0.05)
            for text, scale, moment, exponent_of_d in (
                ("Unscaled, E grows linearly in d", "1", "mean", 1),
                ("Times 1/sqrt(d), E grows as sqrt(d)", "1/sqrt(d)", "mean", 0.5),
                ("Times 1/d, Var falls as 1/d", "1/d", "variance", -1),
            )
        ),
    ]


def _misprint_deviation(row: Row) -> float:
    """Compute by how many standard errors a variance differs from d sigma^4 + 2 d sigma^2 mu.mu."""
    d, sigma = row["d"], row["sigma"]
    misprinted = d * sigma**4 + 2 * d * sigma**2 * (d * row["mu"] ** 2)
    return float(abs(row["variance"] - misprinted) / row["variance_error"])


def _largest_deviation(moments: list[Row], moment: str) -> float:
    """Compute the largest deviation of a moment from its formula, in standard errors."""
    return max(
        float(abs(row[moment] - row[f"{moment}_predicted"]) / row[f"{moment}_error"]) for row in moments
    )
