"""The quantile of Student's t distribution that a 95% interval takes; neither numpy nor torch has it."""

import math
from statistics import NormalDist

import numpy as np

NORMAL_QUANTILE = NormalDist().inv_cdf(0.975)
"""The same quantile of the normal distribution, which t comes to with many degrees of freedom."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


def t_quantile(dof: float) -> float:
    """Half the width of a 95% interval in standard errors, for ``dof`` degrees of freedom.

    With t = sqrt(dof) tan(a), the probability of a value between 0 and t is c times the integral of
    cos(x)^(dof - 1) from 0 to a (Abramowitz and Stegun 1964, 26.7.3), which Gauss' rule gives to the last
    digits. It is concave in a, so that Newton's method, begun below the root, climbs to it and never passes.

    Args:
        dof: at least 1; need not be whole.
    """
    if not dof >= 1:
        raise ValueError(f"dof is {dof}, but a t distribution here takes at least 1 degree of freedom")
    c = math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(math.pi)
    angle = math.atan(NORMAL_QUANTILE / math.sqrt(dof))
    for _ in range(8):  # about dof = 2, the slowest, six steps reach rounding
        heights = np.cos(angle * (_NODES + 1) / 2) ** (dof - 1)
        below = c * float(heights @ _WEIGHTS) * angle / 2
        angle += (0.475 - below) / (c * math.cos(angle) ** (dof - 1))
    return math.sqrt(dof) * math.tan(angle)
