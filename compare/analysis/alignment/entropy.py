"""Entropy of attention: how evenly each target word spreads its weight over the source words.

Shapes: C heads, T target and S source words of a pair.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class AttentionEntropy(NamedTuple):
    """Sums of entropies over target words, each (C,); sums of several sentence pairs may be added."""

    nats: FloatArray
    """Sum of the entropies."""
    words: FloatArray
    """Target words in ``nats``; a word that gives no source word any weight has no entropy."""
    share: FloatArray
    """Sum of the entropies as shares of their maximum log S, over pairs of more than one source word."""
    shared_words: FloatArray
    """Target words in ``share``."""

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean entropy in nats and the mean share of log S, each (C,); NaN without any word."""
        return _ratio(self.nats, self.words), _ratio(self.share, self.shared_words)

    def plus(self, other: "AttentionEntropy") -> "AttentionEntropy":
        """Return the sums over the sentence pairs of both."""
        return AttentionEntropy(*(one + another for one, another in zip(self, other, strict=True)))


def entropy(weights: FloatArray) -> FloatArray:
    """Compute the entropy of attention, -sum p log p over the source words (Ghader and Monz 2017).

    Args:
        weights: (..., T, S), at least 0; each row is normalised to sum to 1.

    Returns:
        Entropies in nats, (..., T); NaN for a row whose weights are all 0.
    """
    p = _ratio(weights, weights.sum(axis=-1, keepdims=True))
    nats: FloatArray = 0 - (p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)  # unary minus would give -0.0
    return nats


def sum_entropy(weights: FloatArray) -> AttentionEntropy:
    """Sum the entropies over the target words of one sentence pair.

    Args:
        weights: (C, T, S).
    """
    nats = entropy(weights)
    total, words = np.nansum(nats, axis=-1), np.isfinite(nats).sum(axis=-1).astype(np.float64)
    source_words = weights.shape[-1]
    if source_words == 1:
        return AttentionEntropy(total, words, np.zeros_like(total), np.zeros_like(words))
    return AttentionEntropy(total, words, total / math.log(source_words), words)


def none_if_nan(value: float) -> float | None:
    """Return ``value``, or None if it is NaN, as tables represent a missing figure."""
    return None if math.isnan(value) else float(value)


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; NaN where ``denominator`` is 0."""
    ratio: FloatArray = np.divide(
        numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0
    )
    return ratio
