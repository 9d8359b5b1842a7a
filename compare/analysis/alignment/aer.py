"""Alignment error rate, precision, recall and F1 of word links (Och and Ney 2003, section 5).

A: proposed links, S: sure gold links, P: possible gold links (S is a subset of P); each is counted over all
sentences of a text. Shapes: T target and S source words; leading dimensions are heads.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
CountArray = NDArray[np.int64]
"""(..., 4), the fields of ``AlignmentCounts`` in their order; counts of several sentences may be added."""


class AlignmentCounts(NamedTuple):
    """Numbers of links, and the scores computed from them; a score whose denominator is 0 is None."""

    proposed: int
    """|A|."""
    sure: int
    """|S|."""
    sure_matches: int
    """|A ∩ S|."""
    possible_matches: int
    """|A ∩ P|."""

    @property
    def precision(self) -> float | None:
        """|A ∩ P| / |A|."""
        return _ratio(self.possible_matches, self.proposed)

    @property
    def recall(self) -> float | None:
        """|A ∩ S| / |S|."""
        return _ratio(self.sure_matches, self.sure)

    @property
    def aer(self) -> float | None:
        """Alignment error rate, 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), from 0 (best) to 1."""
        ratio = _ratio(self.sure_matches + self.possible_matches, self.proposed + self.sure)
        return None if ratio is None else 1 - ratio

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall, which is 1 - AER if all gold links are sure.

        If some gold links are only possible, F1 is the more reliable score: AER then favours few and safe
        links (Fraser and Marcu 2007).
        """
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def scores(self) -> dict[str, float | None]:
        """Return the four scores by name, for a table."""
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall, "f1": self.f1}


def count_links(
    links: BoolArray, sure: BoolArray, possible: BoolArray, *, sure_outside: int = 0
) -> CountArray:
    """Count the links of one sentence.

    Args:
        links: proposed links, (..., T, S).
        sure: sure gold links, (T, S).
        possible: possible gold links, which include the sure ones, (T, S).
        sure_outside: number of sure gold links to words that the sentence does not have. No proposed link
            matches them, but they count in |S|, as in published scores.

    Returns:
        Counts (..., 4) in the order of ``AlignmentCounts``.
    """
    proposed, sure_matches, possible_matches = (
        part.sum(axis=(-1, -2), dtype=np.int64) for part in (links, links & sure, links & possible)
    )
    total = np.broadcast_to(sure.sum(dtype=np.int64) + sure_outside, proposed.shape)
    return np.stack([proposed, total, sure_matches, possible_matches], axis=-1)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
