"""Statistics of translations: BLEU and chrF from sufficient statistics, and paired tests.

References:
- Chen and Cherry 2014, A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU. WMT.
- Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6(2).
- Koehn 2004, Statistical Significance Tests for Machine Translation Evaluation. EMNLP.
- Noreen 1989, Computer-Intensive Methods for Testing Hypotheses. Wiley.
- Papineni et al. 2002, BLEU: a Method for Automatic Evaluation of Machine Translation. ACL.
- Popović 2015, chrF: Character n-gram F-score for Automatic MT Evaluation. WMT.
- Riezler and Maxwell 2005, On Some Pitfalls in Automatic Evaluation and Significance Testing for MT. ACL
  Workshop on Intrinsic and Extrinsic Evaluation Measures.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from compare.scoring.metrics import BOOTSTRAP_SEED, TOKENIZE

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Scores from sums of sentence statistics, so that thousands of resamples cost one matrix product.
#
# N sentences. The statistics are those that sacrebleu computes a corpus score from, with its defaults; scores
# from their sums equal sacrebleu's up to rounding.


MAX_NGRAM_ORDER = 4
"""The longest n-gram of BLEU (Papineni et al. 2002)."""
BETA = 2
"""Weight of recall against precision in chrF (Popović 2015)."""


def bleu(sums: npt.ArrayLike) -> FloatArray:
    """Compute corpus BLEU (13a tokens, cased), 0 to 100.

    An n-gram order without a match gets the exponential smoothing of mteval-v13a (Chen and Cherry 2014,
    method 3): the first such order counts as 1/2 match, the next as 1/4. As in sacrebleu, BLEU is 0 if
    nothing matches at all or if no sentence has four words.

    Args:
        sums: lengths of hypothesis and reference, matches of 1- to 4-grams, their totals: (..., 10).
    """
    counts = np.asarray(sums, dtype=np.float64)
    hyp_len, ref_len = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2 : 2 + MAX_NGRAM_ORDER], counts[..., 2 + MAX_NGRAM_ORDER :]
    no_match = matches == 0
    smoothed = np.where(no_match, 0.5 ** no_match.cumsum(axis=-1), matches)
    log_precision = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    log_brevity_penalty = np.minimum(0, 1 - ref_len / np.maximum(hyp_len, 1))
    nonzero = ~no_match.all(axis=-1) & (totals > 0).all(axis=-1)
    return np.where(nonzero, 100 * np.exp(log_brevity_penalty + log_precision), 0)


def chrf(sums: npt.ArrayLike) -> FloatArray:
    """Compute chrF2 (cased, without white space), 0 to 100; a single sentence gives its own chrF.

    Precision and recall are means over the n-gram orders that both texts have.

    Args:
        sums: for character 1- to 6-grams those of the hypothesis, of the reference, and of both: (..., 18).
    """
    counts = np.asarray(sums, dtype=np.float64)
    hypothesis, reference, both = (counts[..., start::3] for start in range(3))
    known = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(known.sum(axis=-1), 1)
    precision, recall = (
        np.where(known, both / np.maximum(total, 1), 0).sum(axis=-1) / orders
        for total in (hypothesis, reference)
    )
    weighted = BETA**2 * precision + recall
    return np.where(
        weighted > 0, 100 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1), 0
    )


class ComparedMetric(NamedTuple):
    """A metric in which models are compared."""

    counter: Callable[..., BLEU | CHRF]
    """What counts its statistics."""
    score: Callable[[npt.ArrayLike], FloatArray]
    """Score, 0 to 100 and higher is better, from sums of statistics, (..., C) to (...)."""


COMPARED_METRICS = {
    "bleu": ComparedMetric(partial(BLEU, tokenize=TOKENIZE), bleu),
    "chrf": ComparedMetric(CHRF, chrf),
}
"""The metrics in which models are compared, by name. Each more makes Holm's correction stricter."""


def sentence_counts(metric: str, hypotheses: Sequence[str], references: Sequence[str]) -> IntArray:
    """Count the statistics of N sentences, (N, C), from whose sums ``COMPARED_METRICS`` compute a score.

    Raises:
        ValueError: there are not as many hypotheses as references.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    counter = _with_references(COMPARED_METRICS[metric].counter, tuple(references))
    # None: those that were counted when the metric was made.
    return np.array(counter._extract_corpus_statistics(hypotheses, None), dtype=np.int64)


@lru_cache(maxsize=4)  # two metrics of two test sets; the runs of a test set are scored one after the other
def _with_references(metric: Callable[..., BLEU | CHRF], references: tuple[str, ...]) -> BLEU | CHRF:
    """Return a metric that has counted the n-grams of its references."""
    counter = metric(references=[references])
    counter._force = True  # no warning of text that is tokenised
    return counter


# Paired significance tests between two models over all their seeds together, and Holm's correction.
#
# k seeds, N sentences, C statistics per sentence, T trials, R resamples.


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
