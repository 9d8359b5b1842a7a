"""chrF from sentence statistics; see ``bleu_statistics``.

N sentences. The statistics are those of sacrebleu (chrF2, cased, without white space).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.chrf import CHRF

from compare.analysis.significance.bleu_statistics import FloatArray, IntArray
from compare.analysis.significance.sacrebleu_statistics import extract_statistics

BETA = 2
"""Weight of recall against precision (Popović 2015)."""


def sentence_ngrams(hypotheses: Sequence[str], references: Sequence[str]) -> IntArray:
    """Count the sufficient statistics of chrF for each sentence.

    Args:
        hypotheses: N translations.
        references: their N references.

    Returns:
        Counts (N, 18): for character 1- to 6-grams those of the hypothesis, of the reference, and of both.

    Raises:
        ValueError: there are not as many hypotheses as references.
    """
    rows = extract_statistics(CHRF, hypotheses, references)
    return np.array(rows, dtype=np.int64).reshape(-1, 3 * CHRF.CHAR_ORDER)


def chrf(sums: npt.ArrayLike) -> FloatArray:
    """Compute chrF from summed sentence statistics; those of a single sentence give its own chrF.

    Precision and recall are means over the n-gram orders that both texts have.

    Args:
        sums: sums of ``sentence_ngrams`` over sentences, (..., 18).

    Returns:
        chrF from 0 to 100, (...).
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
