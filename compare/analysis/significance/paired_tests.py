"""Paired significance tests between two models over all their seeds together, and Holm's correction.

k seeds, N sentences, C statistics per sentence, T trials, R resamples.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from compare.analysis.significance.bleu_statistics import FloatArray, IntArray
from compare.scoring.metrics.bleu import BOOTSTRAP_SEED

BoolArray = npt.NDArray[np.bool_]

TOLERANCE = 1e-9
"""Points by which rounding may move a statistic that equals the observed one."""
CHUNK = 2**22
"""Swaps that are held as float64 at a time (32 MB)."""


def swap_draws(sentences: int, trials: int) -> BoolArray:
    """Draw which sentences the trials of a randomisation test swap, (T, N).

    The random numbers and their seed are those of sacrebleu's paired test, so that both give the same p-value
    for a single pair of systems.
    """
    rng = np.random.default_rng(int(BOOTSTRAP_SEED))
    return rng.integers(2, size=(trials, sentences), dtype=bool)


def randomisation_p(
    first: Sequence[IntArray],
    second: Sequence[IntArray],
    score: Callable[[FloatArray], FloatArray],
    swaps: BoolArray,
) -> float:
    """Compute the two-sided p-value of the mean difference between two models (Noreen 1989).

    A trial exchanges the translations of the sentences that it swaps between both models, in the pairs of all
    seeds at once, because the translations of one sentence are not independent of each other. The p-value is
    the share of trials, the observed one included, whose mean difference over seeds is at least as large as
    the observed one. With one seed this is the usual approximate randomisation test (Riezler and Maxwell
    2005).

    Args:
        first: statistics of one model, k times (N, C), one per seed.
        second: statistics of the other model; exchanging both does not change p.
        score: corpus score from sums of statistics, (..., C) to (...).
        swaps: the draws, (T, N).
    """
    k = len(first)
    one, other = (np.concatenate(counts, axis=1).astype(np.float64) for counts in (first, second))  # (N, kC)

    def mean_differences(moved: FloatArray) -> FloatArray:
        """Compute the statistic of trials that move sums (T, kC) from the other model to the one."""
        sums = np.stack([one.sum(axis=0) + moved, other.sum(axis=0) - moved]).reshape(2, len(moved), k, -1)
        scores = score(sums)  # (2, T, k)
        differences: FloatArray = (scores[0] - scores[1]).mean(axis=-1)
        return np.abs(differences)

    (observed,) = mean_differences(np.zeros((1, one.shape[1])))
    extreme = sum(
        int((mean_differences(chunk.astype(np.float64) @ (other - one)) >= observed - TOLERANCE).sum())
        for chunk in np.array_split(swaps, math.ceil(swaps.size / CHUNK))
    )
    return (extreme + 1) / (len(swaps) + 1)


def bootstrap_p(difference: float, resampled: FloatArray) -> float:
    """Compute the two-sided p-value of a mean difference by the paired bootstrap (Koehn 2004).

    As in sacrebleu, the resampled absolute differences are shifted by their mean.

    Args:
        difference: the mean difference over seeds.
        resampled: differences on resamples of the test set, (k, R); all seeds share the resamples.
    """
    sampled = np.abs(resampled.mean(axis=0))
    extreme = int((sampled - sampled.mean() >= abs(difference) - TOLERANCE).sum())
    return (extreme + 1) / (len(sampled) + 1)


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons, controlling the family-wise error rate (Holm 1979).

    Args:
        p_values: the p-values of all comparisons of the family.

    Returns:
        The corrected p-values, in the same order.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min((len(p_values) - rank) * p_values[index], 1.0))
        corrected[index] = largest
    return corrected
