"""95% confidence intervals of mean BLEU and of mean differences, for three sources of variation.

- ``test_set``: how would these trained models score on other test sentences?
- ``seeds``: how would models trained with other seeds score on these test sentences?
- ``combined``: how would models trained with other seeds score on other test sentences?

k seeds, R resamples.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.significance import estimate_ci

from compare.analysis.significance.bleu_statistics import FloatArray
from compare.analysis.significance.scored_tests import ScoredRun
from compare.analysis.significance.student_t import t_quantile
from compare.analysis.table import Row


class Interval(NamedTuple):
    """A 95% confidence interval, in BLEU points."""

    low: float
    high: float


class Intervals(NamedTuple):
    """The three intervals of a figure; two need several seeds and are None for one seed."""

    test_set: Interval
    seeds: Interval | None
    combined: Interval | None

    def map(self, function: Callable[[Interval], Interval]) -> "Intervals":
        """Apply ``function`` to each interval that is not None."""
        seeds, combined = (interval and function(interval) for interval in (self.seeds, self.combined))
        return Intervals(function(self.test_set), seeds, combined)

    def columns(self, stem: str, suffix: str = "") -> Row:
        """Return the limits as table columns such as ``<stem>_seeds_low<suffix>``; None if missing."""
        columns: Row = {}
        for kind, interval in self._asdict().items():
            low, high = interval or (None, None)
            columns |= {f"{stem}_{kind}_low{suffix}": low, f"{stem}_{kind}_high{suffix}": high}
        return columns


def model_intervals(runs: Sequence[ScoredRun]) -> Intervals:
    """Compute the intervals of a model's mean BLEU, clipped to 0 to 100.

    Args:
        runs: the runs of one model, one per seed.
    """
    scores = np.array([run.bleu for run in runs])
    intervals = confidence_intervals(scores, np.stack([run.resampled for run in runs]), len(runs[0].counts))
    return intervals.map(lambda interval: Interval(*(min(max(limit, 0.0), 100.0) for limit in interval)))


def difference_intervals(pairs: Sequence[tuple[ScoredRun, ScoredRun]]) -> Intervals:
    """Compute the intervals of the mean difference in BLEU, first minus second.

    Args:
        pairs: runs of two models with the same seed, one pair per seed.
    """
    differences = np.array([first.bleu - second.bleu for first, second in pairs])
    resampled = np.stack([first.resampled - second.resampled for first, second in pairs])
    return confidence_intervals(differences, resampled, len(pairs[0][0].counts))


def confidence_intervals(scores: FloatArray, resampled: FloatArray, sentences: int) -> Intervals:
    """Compute the three intervals of the mean of ``scores``.

    ``test_set`` is a bootstrap interval (Koehn 2004), ``seeds`` an interval of Student's t.

    Args:
        scores: one score per seed, (k,).
        resampled: the scores on resamples of the test set, (k, R); all seeds share the resamples.
        sentences: the size of the test set.
    """
    mean, half_width = estimate_ci(resampled.mean(axis=0))
    test_set = Interval(float(mean - half_width), float(mean + half_width))
    if len(scores) < 2:
        return Intervals(test_set, None, None)
    seed_variance = float(scores.var(ddof=1)) / len(scores)
    return Intervals(
        test_set,
        _t_interval(scores, seed_variance, len(scores) - 1),
        _t_interval(scores, *_combined_variance(seed_variance, resampled, sentences)),
    )


def _combined_variance(seed_variance: float, resampled: FloatArray, sentences: int) -> tuple[float, float]:
    """Estimate the variance of a mean over seeds and sentences, and its degrees of freedom.

    The variances of both sources are added. Both contain the interaction of seed and sentence (a seed that
    does well on some sentences by chance), so it is subtracted once. The bootstrap yields it: the variance
    over resamples is m + x for a single seed and m + x/k for the mean over the k seeds, where m is common to
    all seeds and x is the interaction. Degrees of freedom follow Satterthwaite 1946.
    """
    k = len(resampled)
    sentence_variance = float(resampled.mean(axis=0).var(ddof=1))
    interaction = (float(resampled.var(axis=1, ddof=1).mean()) - sentence_variance) / (k - 1)
    variance = sentence_variance + max(seed_variance - interaction, 0.0)
    denominator = sentence_variance**2 / max(sentences - 1, 1) + seed_variance**2 / (k - 1)
    # With no variance at all, any degrees of freedom give the same interval.
    return variance, max(variance**2 / denominator, k - 1) if denominator else k - 1


def _t_interval(scores: FloatArray, variance: float, dof: float) -> Interval:
    """Return the interval of Student's t around the mean of ``scores``, whose variance is ``variance``."""
    mean, half_width = float(scores.mean()), t_quantile(dof) * math.sqrt(variance)
    return Interval(mean - half_width, mean + half_width)
