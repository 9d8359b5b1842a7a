"""How far proposed word links agree with gold ones, after Och and Ney 2003, section 5.

A proposed, S sure and P possible links (P holds S), each summed over all sentences of a text.
Shapes: T target and S source words; before them any number of heads.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
CountArray = NDArray[np.int64]
"""(..., 4), the fields of ``AlignmentCounts`` in their order; counts of sentences may be added up."""


class AlignmentCounts(NamedTuple):
    """Numbers of links, and the shares made of them; a share of nothing is None."""

    proposed: int
    """|A|."""
    sure: int
    """|S|."""
    right_sure: int
    """|A ∩ S|."""
    right_possible: int
    """|A ∩ P|."""

    @property
    def precision(self) -> float | None:
        """|A ∩ P| / |A|: the share of the proposed links that are not wrong."""
        return _share(self.right_possible, self.proposed)

    @property
    def recall(self) -> float | None:
        """|A ∩ S| / |S|: the share of the sure links that were found."""
        return _share(self.right_sure, self.sure)

    @property
    def aer(self) -> float | None:
        """The alignment error rate 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|): 0 is best, 1 is all wrong."""
        share = _share(self.right_sure + self.right_possible, self.proposed + self.sure)
        return None if share is None else 1 - share

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall, which is 1 - AER where all gold links are sure.

        Where some are only possible it is the better judge: AER then favours few and safe links (Fraser and
        Marcu 2007).
        """
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def shares(self) -> dict[str, float | None]:
        """The four shares by name, for a table."""
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall, "f1": self.f1}


def count_links(links: BoolArray, sure: BoolArray, possible: BoolArray) -> CountArray:
    """Count the links of one sentence as ``AlignmentCounts`` names them.

    Args:
        links: proposed ones, (..., T, S).
        sure: gold ones, (T, S).
        possible: gold ones, those of ``sure`` among them, (T, S).

    Returns:
        Counts (..., 4).
    """
    proposed, right_sure, right_possible = (
        part.sum(axis=(-1, -2), dtype=np.int64) for part in (links, links & sure, links & possible)
    )
    total = np.broadcast_to(sure.sum(dtype=np.int64), proposed.shape)
    return np.stack([proposed, total, right_sure, right_possible], axis=-1)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
