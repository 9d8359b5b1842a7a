"""Word links from attention weights, and from no weights at all.

Shapes: T target and S source words; before them any number of heads. Links are bool, one row a target word.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WeightArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]

ARG_MAX = "arg max"
"""The name of the method that papers use most."""
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
"""The weights from which on a link is made; which one is best, the validation split says."""


class Method(NamedTuple):
    """A way to read links off weights (..., T, S)."""

    name: str
    threshold: float | None
    """Of several methods of one name the best is chosen on validation."""
    links: Callable[[WeightArray], BoolArray]


def arg_max(weights: WeightArray) -> BoolArray:
    """Link each target word to the source word of the largest weight (Luong et al. 2015, section 5.4).

    Of equal weights the first counts. A target word of no weight at all, whose model looked at the end of
    the sentence alone, is linked to nothing.

    Args:
        weights: (..., T, S).
    """
    links: BoolArray = np.zeros(weights.shape, dtype=np.bool_)
    best = weights.argmax(axis=-1)[..., None]
    np.put_along_axis(links, best, np.take_along_axis(weights, best, axis=-1) > 0, axis=-1)
    return links


def mutual_arg_max(weights: WeightArray) -> BoolArray:
    """Keep the links that ``arg_max`` makes from either side of ``weights`` (..., T, S).

    The intersection of two directions (Och and Ney 2003, section 4), both of them read off one matrix.
    """
    turned = arg_max(weights.swapaxes(-1, -2)).swapaxes(-1, -2)
    return arg_max(weights) & turned


def above_threshold(weights: WeightArray, threshold: float) -> BoolArray:
    """Link whatever has a weight of at least ``threshold``; a word may have no link or several."""
    return weights >= threshold


def diagonal(tgt_words: int, src_words: int) -> BoolArray:
    """Link each target word to the source word at the same share of the sentence; (T, S)."""
    links: BoolArray = np.zeros((tgt_words, src_words), dtype=np.bool_)
    rows = np.arange(tgt_words)
    links[rows, (2 * rows + 1) * src_words // (2 * tgt_words)] = True  # where the word's middle falls
    return links


METHODS = (
    Method(ARG_MAX, None, arg_max),
    Method("intersection", None, mutual_arg_max),
    *(Method("threshold", value, partial(above_threshold, threshold=value)) for value in THRESHOLDS),
)
"""All ways to read links off weights."""
