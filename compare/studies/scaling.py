"""Scaling of scores by 1/sqrt(d): mean and variance of q . k, and their effect on the softmax.

Vaswani et al. 2017 (section 3.2.1): for independent components of mean 0 and variance 1, q . k has mean 0 and
variance d. For N(mu, sigma^2 I) the d products q_i k_i are independent with mean mu_i^2 and variance
E[q_i^2] E[k_i^2] - mu_i^4 = sigma^4 + 2 sigma^2 mu_i^2; their sums are the formulas tested here. The answer
to a lecture worksheet (University of California, Berkeley) has a factor d too many in the second term of the
variance, 2 d sigma^2 mu.mu, although mu.mu is a sum over d components already. The study measures both.

They suspect that large unscaled products push the softmax into regions of small gradients. The exponents
follow from scores of variance d: in the limit the two largest of the scores, whose gap grows as sqrt(d), are
close enough to share the weight with a probability that falls as 1/sqrt(d).

Shapes: B queries, K keys each.
"""

import logging
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from compare.results.formatting import Row
from compare.studies.linearity import draw
from compare.studies.panels import conclude, exponent
from compare.studies.study import Settings, StudyResult

logger = logging.getLogger(__name__)

SCALES: dict[str, Callable[[int], float]] = {
    "1": lambda d: 1.0,
    "1/sqrt(d)": lambda d: d**-0.5,
    "1/d": lambda d: 1.0 / d,
}
NORMALS = ((0.0, 1.0), (0.5, 1.0), (0.25, 1.5))
CHUNK = 2_000
KEYS = 64
SATURATED = 64
"""Smallest d at which unscaled scores are taken to saturate the softmax."""


def run(settings: Settings) -> StudyResult:
    """Measure moments, scales and softmax over d."""
    sizes = [4, 16, 64, 256] if settings.quick else [4, 16, 64, 256, 1024]
    samples, queries = (2_000, 200) if settings.quick else (40_000, 2_000)
    logger.info(f"scaling: {samples:,} products for each of {len(sizes) * len(NORMALS)} settings")
    moments = [measure_moments(d, mu, sigma, samples) for mu, sigma in NORMALS for d in sizes]
    logger.info("scaling: entropy and gradient of the softmax")
    softmax = [measure_softmax(d, queries) for d in sizes]
    scales = [fit_exponents(name, moments) for name in SCALES]
    variances: list[Row] = [
        {"d": d, "d, predicted": d, "1, predicted": 1}
        | {f"times {name}": scaled(name, moments, NORMALS[0])[index]["variance"] for name in SCALES}
        for index, d in enumerate(sizes)
    ]
    return conclude(
        settings,
        {"moments": moments, "scales": scales, "softmax": softmax, "variances": variances},
        {**moment_series(moments, scales), **softmax_series(softmax)},
        **{"samples": samples, "queries": queries, "keys": KEYS, "count": len(moments)},
        **{"first": sizes[0], "last": sizes[-1], "saturated": SATURATED},
    )


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
    queries, keys = (mu + sigma * draw(CHUNK, d) for _ in range(2))
    return (queries * keys).sum(1)


def scaled(name: str, moments: Sequence[Row], normal: tuple[float, float]) -> list[Row]:
    """Return mean, variance and its error of the score times SCALES[name], by d, for one (mu, sigma)."""
    factors = [(row, SCALES[name](row["d"])) for row in moments if (row["mu"], row["sigma"]) == normal]
    return [
        {
            "d": row["d"],
            "mean": row["mean"] * factor,
            "variance": row["variance"] * factor**2,
            "variance_error": row["variance_error"] * factor**2,
        }
        for row, factor in factors
    ]


def fit_exponents(name: str, moments: Sequence[Row]) -> Row:
    """Fit the exponents in d of mean and variance of the score times SCALES[name], where mu is not 0."""
    rows = scaled(name, moments, NORMALS[1])
    return {
        "scale": name,
        "exponent_of_mean": exponent(rows, "d", "mean"),
        "exponent_of_variance": exponent(rows, "d", "variance"),
    }


def moment_series(moments: Sequence[Row], scales: Sequence[Row]) -> dict[str, float]:
    """Compute what the claims are about: mean and variance."""
    unscaled, root, inverse = scales
    unit = scaled("1/sqrt(d)", moments, NORMALS[0])
    return {
        "mean": max(_deviation(row, "mean", row["mean_predicted"]) for row in moments),
        "variance": max(_deviation(row, "variance", row["variance_predicted"]) for row in moments),
        "misprint": min(_deviation(row, "variance", _misprinted(row)) for row in moments if row["mu"]),
        "unit": max(_deviation(row, "variance", 1) for row in unit),
        "unscaled": unscaled["exponent_of_mean"],
        "root": root["exponent_of_mean"],
        "inverse": inverse["exponent_of_variance"],
    }


def _deviation(row: Row, moment: str, expected: float) -> float:
    return float(abs(row[moment] - expected) / row[f"{moment}_error"])


def _misprinted(row: Row) -> float:
    d, sigma = row["d"], row["sigma"]
    return float(d * sigma**4 + 2 * d * sigma**2 * (d * row["mu"] ** 2))


def measure_softmax(d: int, queries: int) -> Row:
    """Measure entropy and gradient of the softmax over ``KEYS`` scores, for each scale."""
    scores = torch.einsum("bd,bkd->bk", draw(queries, d), draw(queries, KEYS, d))
    row: Row = {"d": d}
    for name, scale in SCALES.items():
        weights = (scores * scale(d)).softmax(1)
        row[f"entropy at {name}"] = float(torch.special.entr(weights).sum(1).mean())
        row[f"gradient at {name}"] = float(jacobian_norm(weights).mean())
    return row


def jacobian_norm(weights: Tensor) -> Tensor:
    """Compute the Frobenius norm (B,) of diag(p) - p p^T for each row p of weights (B, K)."""
    second, third = weights.pow(2).sum(1), weights.pow(3).sum(1)
    return (second - 2 * third + second**2).clamp(min=0).sqrt()


def softmax_series(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Compute what the claims are about: entropy and gradient."""
    first, last = rows[0], rows[-1]
    saturated = [row for row in rows if row["d"] >= SATURATED]
    quantities = ("entropy", "gradient")
    return {
        "steady": {name: last[f"{name} at 1/sqrt(d)"] / first[f"{name} at 1/sqrt(d)"] for name in quantities},
        "saturates": {name: exponent(saturated, "d", f"{name} at 1") for name in quantities},
    }
