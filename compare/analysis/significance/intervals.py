"""Three 95% intervals of a mean BLEU over seeds, and of a difference: each answers a question of its own.

- ``test set``: what would these very models score on other sentences?
- ``seeds``: what would other seeds score on these very sentences?
- ``combined``: what would other seeds score on other sentences?

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
    """A 95% interval, in points of BLEU."""

    low: float
    high: float


class Intervals(NamedTuple):
    """The three intervals of a figure; of one seed nothing can be said of others, so two are None."""

    test_set: Interval
    seeds: Interval | None
    combined: Interval | None

    def map(self, change: Callable[[Interval], Interval]) -> "Intervals":
        """Each that there is, changed."""
        seeds, combined = (each and change(each) for each in (self.seeds, self.combined))
        return Intervals(change(self.test_set), seeds, combined)

    def columns(self, stem: str, end: str = "") -> Row:
        """The ends as columns of a table, ``<stem>_seeds_low<end>`` and so on, None where there is none."""
        found: Row = {}
        for kind, interval in self._asdict().items():
            low, high = interval or (None, None)
            found |= {f"{stem}_{kind}_low{end}": low, f"{stem}_{kind}_high{end}": high}
        return found


def model_intervals(runs: Sequence[ScoredRun]) -> Intervals:
    """Intervals of a model's mean BLEU over its seeds, kept on the scale of 0 to 100."""
    scores = np.array([run.bleu for run in runs])
    found = confidence_intervals(scores, np.stack([run.resampled for run in runs]), len(runs[0].counts))
    return found.map(lambda each: Interval(*(min(max(end, 0.0), 100.0) for end in each)))


def difference_intervals(pairs: Sequence[tuple[ScoredRun, ScoredRun]]) -> Intervals:
    """Intervals of the mean of first minus second over ``pairs`` of runs with the same seed."""
    differences = np.array([first.bleu - second.bleu for first, second in pairs])
    resampled = np.stack([first.resampled - second.resampled for first, second in pairs])
    return confidence_intervals(differences, resampled, len(pairs[0][0].counts))


def confidence_intervals(scores: FloatArray, resampled: FloatArray, sentences: int) -> Intervals:
    """The three intervals of the mean of ``scores``.

    Args:
        scores: one a seed, (k,).
        resampled: the same figures on resamples of the test set, which all seeds share, (k, R).
        sentences: the size of the test set.
    """
    mean, half = estimate_ci(resampled.mean(axis=0))
    test_set = Interval(float(mean - half), float(mean + half))
    if len(scores) < 2:
        return Intervals(test_set, None, None)
    across_seeds = float(scores.var(ddof=1)) / len(scores)
    return Intervals(
        test_set,
        _around(scores, across_seeds, len(scores) - 1),
        _around(scores, *_combined(across_seeds, resampled, sentences)),
    )


def _combined(across_seeds: float, resampled: FloatArray, sentences: int) -> tuple[float, float]:
    """The variance of a mean over seeds and sentences, and its degrees of freedom (Satterthwaite 1946).

    The variances of both sources are added. Both hold the interplay of seed and sentence (a seed that is
    lucky with some sentences), which is therefore taken out once. It is known from the bootstrap: with
    the k seeds of one test set, a single seed's variance is m + x and that of their mean m + x/k.
    """
    k = len(resampled)
    across_sentences = float(resampled.mean(axis=0).var(ddof=1))
    interplay = (float(resampled.var(axis=1, ddof=1).mean()) - across_sentences) / (k - 1)
    variance = across_sentences + max(across_seeds - interplay, 0.0)
    spread = across_sentences**2 / max(sentences - 1, 1) + across_seeds**2 / (k - 1)
    # Where nothing varies at all, any degrees of freedom give the same interval.
    return variance, max(variance**2 / spread, k - 1) if spread else k - 1


def _around(scores: FloatArray, variance: float, dof: float) -> Interval:
    """The interval of Student's t around the mean of ``scores``."""
    mean, half = float(scores.mean()), t_quantile(dof) * math.sqrt(variance)
    return Interval(mean - half, mean + half)
