"""How widely attention is spread: the entropy of what each target word gives to the source's words.

Shapes: C heads, T target and S source words of a pair.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class AttentionEntropy(NamedTuple):
    """Sums over target words, which may be added up over pairs; each is (C,)."""

    nats: FloatArray
    """Of the entropy."""
    words: FloatArray
    """Target words that give weight to any source word: without it there is no distribution."""
    share: FloatArray
    """Of the entropy as a share of log S, its largest value; over pairs of more than one source word."""
    shared_words: FloatArray
    """How many words that last sum is over."""

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Mean entropy in nats and mean share of log S, each (C,); NaN where there is no word."""
        return _ratio(self.nats, self.words), _ratio(self.share, self.shared_words)

    def plus(self, other: "AttentionEntropy") -> "AttentionEntropy":
        """The sums over the pairs of both."""
        return AttentionEntropy(*(one + another for one, another in zip(self, other, strict=True)))


def entropy(weights: FloatArray) -> FloatArray:
    """-sum p log p in nats over each row p of ``weights`` (..., T, S), scaled to add up to 1.

    How concentrated attention is, as Ghader and Monz 2017 measure it. Returns (..., T); NaN for a row of no
    weight.
    """
    p = _ratio(weights, weights.sum(axis=-1, keepdims=True))
    nats: FloatArray = 0 - (p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)  # 0 - x: a bare minus gives -0.0
    return nats


def sum_entropy(weights: FloatArray) -> AttentionEntropy:
    """The sums over the target words of one pair's ``weights`` (C, T, S)."""
    nats = entropy(weights)
    total, words = np.nansum(nats, axis=-1), np.isfinite(nats).sum(axis=-1).astype(np.float64)
    source_words = weights.shape[-1]
    if source_words == 1:
        return AttentionEntropy(total, words, np.zeros_like(total), np.zeros_like(words))
    return AttentionEntropy(total, words, total / math.log(source_words), words)


def none_if_nan(value: float) -> float | None:
    """``value`` as a table holds it: None where it is NaN."""
    return None if math.isnan(value) else float(value)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """``part`` / ``whole``, NaN where that is 0."""
    ratio: FloatArray = np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)
    return ratio
