"""Statistics of translations: BLEU and chrF from sufficient statistics, and the correction of many tests.

References:
- Chen and Cherry 2014, A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU. WMT.
- Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6(2).
- Papineni et al. 2002, BLEU: a Method for Automatic Evaluation of Machine Translation. ACL.
- Noreen 1989, Computer-Intensive Methods for Testing Hypotheses. Wiley.
- Popović 2015, chrF: Character n-gram F-score for Automatic MT Evaluation. WMT.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from compare.scoring.metrics import BOOTSTRAP_SEED, TOKENIZE, make_bleu
from compare.scoring.score import HEADLINE, ScoringOptions
from data.files import as_paths
from data.text import read_lines

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Scores from sums of sentence statistics, so that thousands of resamples cost one matrix product.
#
# N sentences. The statistics are those that sacrebleu computes a corpus score from, with its defaults; scores
# from their sums equal sacrebleu's up to rounding.


MAX_NGRAM_ORDER = 4
"""The longest n-gram of BLEU (Papineni et al. 2002)."""
BETA = 2
"""Weight of recall against precision in chrF (Popović 2015)."""


def bleu(sums: npt.ArrayLike) -> FloatArray:
    """Compute corpus BLEU (cased), 0 to 100.

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
    """A metric whose scores follow from sums over sentences."""

    counter: Callable[..., BLEU | CHRF]
    """Makes what counts its statistics, given BLEU's tokenizer and ``references``."""
    score: Callable[[npt.ArrayLike], FloatArray]
    """Score, 0 to 100 and higher is better, from sums of statistics, (..., C) to (...)."""


COMPARED_METRICS = {
    "bleu": ComparedMetric(make_bleu, bleu),
    "chrf": ComparedMetric(lambda _, **options: CHRF(**options), chrf),
}
"""The metrics with intervals over sentences and seeds, by name."""


def sentence_counts(
    metric: str, hypotheses: Sequence[str], references: Sequence[str], tokenize: str = TOKENIZE
) -> IntArray:
    """Count the statistics of N sentences, (N, C), from whose sums ``COMPARED_METRICS`` compute a score.

    They are kept for the next analysis of the same texts, so that the array cannot be written.

    Raises:
        ValueError: there are not as many hypotheses as references.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    return _count(metric, tokenize, tuple(hypotheses), tuple(references))


@lru_cache(maxsize=256)  # two metrics of about a hundred translations, 0.2 MB per 1,000 sentences
def _count(metric: str, tokenize: str, hypotheses: tuple[str, ...], references: tuple[str, ...]) -> IntArray:
    counter = _with_references(metric, tokenize, references)
    # None: those that were counted when the metric was made.
    counts = np.array(counter._extract_corpus_statistics(hypotheses, None), dtype=np.int64)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)  # two metrics of two test sets; the runs of a test set are scored one after the other
def _with_references(metric: str, tokenize: str, references: tuple[str, ...]) -> BLEU | CHRF:
    """Return a metric that has counted the n-grams of its references."""
    return COMPARED_METRICS[metric].counter(tokenize, references=[references])


# Many tests.


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


class PairedDifference(NamedTuple):
    """Difference in BLEU between two translations of one test set."""

    first: str
    second: str
    difference: float
    """BLEU of first minus BLEU of second."""
    p: float
    """Two-sided p-value of approximate randomisation, with Holm's correction for all pairs of the call."""


TRIALS = 10_000
"""Trials of approximate randomisation."""


def compare_files(
    systems: Sequence[str | Path], references: Sequence[str | Path], scoring: ScoringOptions = HEADLINE
) -> list[PairedDifference]:
    """Test which translations of one test set differ in BLEU; it says nothing of models trained again.

    In each trial the two systems exchange their translations of random sentences (Noreen 1989); p is the
    share of trials, and of what was found, that differ as much. sacreBLEU's test counts only those that
    differ more, so that systems which differ in a single sentence get p = 0.0001.

    Args:
        systems: files of translations, one line per sentence.
        references: files of references, with as many lines.
        scoring: options of BLEU.
    """
    read = partial(read_lines, allow_blank=True, keep_mark=True)  # as score_files does
    texts = [read(path) for path in as_paths(references)]
    metric = make_bleu(scoring.tokenize, lowercase=scoring.lowercase, references=texts)
    counts = {
        str(path): np.array(metric._extract_corpus_statistics(read(path), None)) for path in as_paths(systems)
    }
    rng, found = np.random.default_rng(BOOTSTRAP_SEED), []
    swapped = rng.integers(2, size=(TRIALS, len(texts[0]))).astype(np.float64)
    for (first, one), (second, other) in combinations(counts.items(), 2):
        moved = swapped @ (other - one)
        differences = bleu(one.sum(0) + moved) - bleu(other.sum(0) - moved)
        difference = float(bleu(one.sum(0)) - bleu(other.sum(0)))
        as_large = int((np.abs(differences) >= abs(difference) - 1e-9).sum())  # rounding
        found.append(PairedDifference(first, second, difference, (as_large + 1) / (TRIALS + 1)))
    corrected = holm_correction([each.p for each in found])
    return [each._replace(p=p) for each, p in zip(found, corrected, strict=True)]
