"""BLEU from sentence statistics, so that thousands of resamples of a test set cost one matrix product.

N sentences. The statistics are those of sacrebleu (13a tokens, cased); BLEU computed from them
equals sacrebleu's corpus BLEU, smoothing included, up to rounding.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.significance.sacrebleu_statistics import extract_statistics

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MAX_NGRAM_ORDER = 4
"""The longest n-gram of BLEU (Papineni et al. 2002)."""


def sentence_counts(hypotheses: Sequence[str], references: Sequence[str]) -> IntArray:
    """Count the sufficient statistics of BLEU for each sentence.

    Args:
        hypotheses: N translations.
        references: their N references.

    Returns:
        Counts (N, 10): matches of 1- to 4-grams, totals of 1- to 4-grams, hypothesis and reference length.

    Raises:
        ValueError: there are not as many hypotheses as references.
    """
    rows = extract_statistics(BLEU, hypotheses, references)
    lengths_first = np.array(rows, dtype=np.int64).reshape(-1, 2 * MAX_NGRAM_ORDER + 2)
    return np.roll(lengths_first, -2, axis=1)


def bleu(sums: npt.ArrayLike) -> FloatArray:
    """Compute corpus BLEU from summed sentence statistics.

    An n-gram order without a match gets the exponential smoothing of mteval-v13a (Chen and Cherry 2014,
    method 3): the first such order counts as 1/2 match, the next as 1/4. As in sacrebleu, BLEU is 0 if
    nothing matches at all or if no sentence has four words.

    Args:
        sums: sums of ``sentence_counts`` over sentences, (..., 10).

    Returns:
        BLEU from 0 to 100, (...).
    """
    counts = np.asarray(sums, dtype=np.float64)
    matches, totals = counts[..., :MAX_NGRAM_ORDER], counts[..., MAX_NGRAM_ORDER : 2 * MAX_NGRAM_ORDER]
    hyp_len, ref_len = counts[..., -2], counts[..., -1]
    no_match = matches == 0
    smoothed = np.where(no_match, 0.5 ** no_match.cumsum(axis=-1), matches)
    log_precision = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    log_brevity_penalty = np.minimum(0, 1 - ref_len / np.maximum(hyp_len, 1))
    nonzero = ~no_match.all(axis=-1) & (totals > 0).all(axis=-1)
    return np.where(nonzero, 100 * np.exp(log_brevity_penalty + log_precision), 0)
