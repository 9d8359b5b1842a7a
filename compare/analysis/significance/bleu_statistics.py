"""BLEU from the counts of each sentence, so that thousands of resamples of a test set cost one product.

N sentences, R resamples. sacrebleu counts (13a tokens, cased); what is done here with its counts equals its
own corpus BLEU, smoothing included, to rounding.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU

from compare.scoring.metrics.bleu import BOOTSTRAP_SEED

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ORDERS = 4
"""The longest n-gram of BLEU (Papineni et al. 2002)."""


def sentence_counts(hypotheses: Sequence[str], references: Sequence[str]) -> IntArray:
    """What BLEU adds up over sentences: (N, 10) of matches and totals of 1- to 4-grams, and both lengths."""
    metric = BLEU(effective_order=True)  # of no matter for counts; without it sacrebleu warns
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = metric.sentence_score(hypothesis, [reference])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.int64).reshape(-1, 2 * ORDERS + 2)


def bleu(sums: npt.ArrayLike) -> FloatArray:
    """Corpus BLEU, 0 to 100, of summed counts (..., 10); returns (...).

    An order without a match gets the exponential smoothing of mteval-v13a (Chen and Cherry 2014, method 3):
    the first such counts as 1/2 of a match, the next as 1/4. BLEU is 0 where nothing matches at all or where
    no sentence has four words, as in sacrebleu.
    """
    counts = np.asarray(sums, dtype=np.float64)
    matches, totals = counts[..., :ORDERS], counts[..., ORDERS : 2 * ORDERS]
    hyp_len, ref_len = counts[..., -2], counts[..., -1]
    missing = matches == 0
    smoothed = np.where(missing, 0.5 ** missing.cumsum(axis=-1), matches)
    log_precision = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    log_brevity = np.minimum(0, 1 - ref_len / np.maximum(hyp_len, 1))
    scored = ~missing.all(axis=-1) & (totals > 0).all(axis=-1)
    return np.where(scored, 100 * np.exp(log_brevity + log_precision), 0)


def draws(sentences: int, resamples: int) -> FloatArray:
    """How often each bootstrap resample of a test set draws each sentence, (R, N).

    They are the draws that sacrebleu makes for the interval of a row, seed included: one name, one figure.
    """
    rng = np.random.default_rng(int(BOOTSTRAP_SEED))
    drawn = rng.choice(sentences, size=(resamples, sentences), replace=True)
    return np.stack([np.bincount(row, minlength=sentences) for row in drawn]).astype(np.float64)
