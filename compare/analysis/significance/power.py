"""Power of a comparison: how probable it was that a true difference would be found.

The rule is that of ``Comparison``. k seeds, m tests made together.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, median

import numpy as np

from compare.analysis.significance.comparison import ALPHA
from compare.analysis.significance.intervals import Variances, combined_half_width
from compare.analysis.significance.matched_runs import MatchedRuns
from compare.scoring.metrics import METRICS

POWER = 0.8
"""Power of the smallest difference that is reported, the usual choice (Cohen 1988)."""

_NORMAL = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


class RulePower:
    """Probability that the rule of ``Comparison`` finds a true difference, given the variances.

    The variance over sentences counts as known. That over seeds is estimated anew by each experiment: k - 1
    times the estimate over its true value has a chi-squared distribution with k - 1 degrees of freedom, over
    whose square root the power is integrated. With one seed, a difference of these very models counts as
    found where it is significant on the test set.
    """

    def __init__(self, variances: Variances, seeds: int, sentences: int, tests: int) -> None:
        """Compute the threshold of the mean difference for each node of the integral.

        Args:
            variances: of the mean difference over seeds; true values.
            seeds: k.
            sentences: size of the test set.
            tests: m; the p-value must stay significant when multiplied by it, the worst case of Holm.
        """
        by_test_set = _NORMAL.inv_cdf(1 - ALPHA / (2 * tests)) * math.sqrt(variances.sentences)
        self.standard_error = math.sqrt(variances.total)
        if seeds == 1:
            self.probabilities, self.thresholds = [1.0], [by_test_set]
            return
        dof = seeds - 1
        limit = 1 + 8 / math.sqrt(2 * dof)
        roots = limit * (_NODES + 1) / 2  # of chi-squared / dof
        log_constant = math.log(2) + dof / 2 * math.log(dof / 2) - math.lgamma(dof / 2)
        density = np.exp(log_constant + (dof - 1) * np.log(roots) - dof * roots**2 / 2)
        self.probabilities = (density * _WEIGHTS * limit / 2).tolist()
        self.thresholds = [
            max(
                by_test_set,
                combined_half_width(variances._replace(seeds=variances.seeds * root**2), seeds, sentences),
            )
            for root in roots.tolist()
        ]

    def __call__(self, difference: float) -> float:
        """Return the probability that a true ``difference`` above 0 is found."""
        if not self.standard_error:
            return float(difference > 0)
        found = ((difference - threshold) / self.standard_error for threshold in self.thresholds)
        return sum(p * _NORMAL.cdf(z) for p, z in zip(self.probabilities, found, strict=True))

    def smallest_difference(self, power: float = POWER) -> float:
        """Return the smallest true difference that is found with probability ``power``."""
        low, high = 0.0, max(self.thresholds) + 8 * self.standard_error
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self(middle) < power else (low, middle)
        return high


def smallest_differences(matched: Sequence[MatchedRuns], tests: int) -> dict[tuple[str, str], float]:
    """Estimate the smallest true differences that an experiment would have found with a power of ``POWER``.

    Args:
        matched: the pairs of models.
        tests: number of comparisons made together.

    Returns:
        By test set and metric, the median over pairs of models.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for runs in matched:
        power = RulePower(runs.variances, len(runs.seeds), runs.sentences, tests)
        found.setdefault((runs.test, runs.metric), []).append(power.smallest_difference())
    return {key: median(differences) for key, differences in found.items()}


def describe_smallest(differences: Mapping[tuple[str, str], float]) -> str:
    """Format ``smallest_differences``: "2.6 BLEU and 1.9 chrF on test, 3.1 BLEU and 2.2 chrF on long"."""
    by_test: dict[str, list[str]] = {}
    for (test, metric), difference in differences.items():
        by_test.setdefault(test, []).append(f"{difference:.1f} {METRICS[metric].heading}")
    return ", ".join(f"{' and '.join(texts)} on {test}" for test, texts in by_test.items())
