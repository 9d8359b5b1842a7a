"""Quantile of Student's t distribution for 95% intervals; neither numpy nor torch provides it."""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

NORMAL_QUANTILE = NormalDist().inv_cdf(0.975)
"""The same quantile of the normal distribution, the limit for many degrees of freedom."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


@lru_cache(maxsize=1000)
def t_quantile(dof: float) -> float:
    """Return the 0.975 quantile: half the width of a 95% interval in standard errors.

    With t = sqrt(dof) tan(a), the probability of a value between 0 and t is c times the integral of
    cos(x)^(dof - 1) from 0 to a (Abramowitz and Stegun 1964, 26.7.3), computed by Gauss-Legendre quadrature
    to full precision. It is concave in a, so Newton's method started below the root never overshoots.

    Args:
        dof: degrees of freedom, at least 1, not necessarily an integer.

    Raises:
        ValueError: ``dof`` is below 1.
    """
    if not dof >= 1:
        raise ValueError(f"dof is {dof}, but a t distribution here takes at least 1 degree of freedom")
    c = math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(math.pi)
    angle = math.atan(NORMAL_QUANTILE / math.sqrt(dof))
    for _ in range(8):  # near dof = 2, the slowest case, six steps reach rounding
        heights = np.cos(angle * (_NODES + 1) / 2) ** (dof - 1)
        probability = c * float(heights @ _WEIGHTS) * angle / 2
        angle += (0.475 - probability) / (c * math.cos(angle) ** (dof - 1))
    return math.sqrt(dof) * math.tan(angle)
