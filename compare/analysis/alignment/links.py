"""Methods that derive word links from attention weights, and the diagonal baseline.

Shapes: T target and S source words; leading dimensions are heads. Links are bool, (..., T, S).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WeightArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]

ARG_MAX = "arg max"
"""Name of the method that is most common in the literature."""
SHIFTS = (0, -1, 1, -2, 2)
"""Numbers of source words by which all links of a head are moved, nearest first."""
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
"""Minimum weights of a link; the best one is chosen on the validation split."""


class Method(NamedTuple):
    """A method that derives links from weights (..., T, S)."""

    name: str
    threshold: float | None
    """None for a method without threshold; methods with the same name differ only in this."""
    links: Callable[[WeightArray], BoolArray]


def arg_max(weights: WeightArray) -> BoolArray:
    """Link each target word to the source word with the largest weight (Luong et al. 2015, section 5.4).

    Of equal weights the first counts. A target word whose weights are all 0, because the model attended to
    the end of sentence only, has no link.

    Args:
        weights: (..., T, S).

    Returns:
        Links (..., T, S).
    """
    links: BoolArray = np.zeros(weights.shape, dtype=np.bool_)
    best = weights.argmax(axis=-1)[..., None]
    np.put_along_axis(links, best, np.take_along_axis(weights, best, axis=-1) > 0, axis=-1)
    return links


def mutual_arg_max(weights: WeightArray) -> BoolArray:
    """Keep the links that ``arg_max`` finds both over source words and over target words.

    This is the intersection of two alignment directions (Och and Ney 2003, section 4), here both derived from
    one weight matrix.

    Args:
        weights: (..., T, S).

    Returns:
        Links (..., T, S).
    """
    over_targets = arg_max(weights.swapaxes(-1, -2)).swapaxes(-1, -2)
    return arg_max(weights) & over_targets


def shift_links(links: BoolArray, by: int) -> BoolArray:
    """Move links by a number of source words, to the right if positive; those that leave the sentence go.

    Args:
        links: (..., T, S).
        by: number of words.

    Returns:
        Links (..., T, S).
    """
    moved: BoolArray = np.roll(links, by, axis=-1)
    if by > 0:
        moved[..., :by] = False
    elif by < 0:
        moved[..., by:] = False
    return moved


def above_threshold(weights: WeightArray, threshold: float) -> BoolArray:
    """Link all pairs of words with a weight of at least ``threshold``; a word may have several links or none.

    Args:
        weights: (..., T, S).
        threshold: 0 to 1.

    Returns:
        Links (..., T, S).
    """
    return weights >= threshold


def diagonal(tgt_words: int, src_words: int) -> BoolArray:
    """Link each target word to the source word at the same relative position; returns (T, S)."""
    links: BoolArray = np.zeros((tgt_words, src_words), dtype=np.bool_)
    positions = np.arange(tgt_words)
    # The source word that contains the middle of the target word.
    links[positions, (2 * positions + 1) * src_words // (2 * tgt_words)] = True
    return links


METHODS = (
    Method(ARG_MAX, None, arg_max),
    Method("intersection", None, mutual_arg_max),
    *(Method("threshold", value, partial(above_threshold, threshold=value)) for value in THRESHOLDS),
)
"""All methods that derive links from weights."""


def method_number(name: str) -> int:
    """Return the index in ``METHODS`` of "arg max", "intersection", or a threshold such as "0.2".

    Raises:
        ValueError: there is no such method.
    """
    names = [each.name if each.threshold is None else str(each.threshold) for each in METHODS]
    if name not in names:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(names)}")
    return names.index(name)
