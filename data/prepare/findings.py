"""Findings of a corpus check (count and first lines of each), and statistics of line lengths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_EXAMPLES = 5
"""Number of lines, and of characters, that are reported per finding."""

IntArray = NDArray[np.int64]


@dataclass(kw_only=True)
class Finding:
    """Lines with one property in common."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    """Numbers of the first such lines, from 1; numbering continues from one file of a side to the next."""
    characters: dict[str, int] = field(default_factory=dict)
    """How often each character that caused the finding occurs, by code point ("U+00A0")."""

    def add(self, lines: Iterable[int], count: int) -> None:
        """Add ``count`` lines.

        Args:
            lines: their numbers in ascending order, at least the first ``MAX_EXAMPLES`` of them.
            count: how many lines there are in all.
        """
        self.count += count
        self.lines += [int(line) for line in lines][: MAX_EXAMPLES - len(self.lines)]

    def add_rows(self, rows: IntArray, first: int) -> None:
        """Add lines given by their indices in a block.

        Args:
            rows: ascending indices, from 0.
            first: line number of the block's first line.
        """
        self.add(rows[:MAX_EXAMPLES] + first, len(rows))

    def to_json(self) -> dict[str, Any]:
        """Return count and lines, and the most frequent characters if there are any."""
        common = dict(sorted(self.characters.items(), key=lambda item: (-item[1], item[0]))[:MAX_EXAMPLES])
        return {"count": self.count, "lines": self.lines} | ({"characters": common} if common else {})


QUANTILES = {"min": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


class LengthHistogram:
    """Number of lines of each length; memory grows with the longest line only."""

    def __init__(self) -> None:
        self._counts: IntArray = np.zeros(1, dtype=np.int64)

    def add(self, lengths: IntArray) -> None:
        """Count the lengths of a block of lines."""
        counts = np.bincount(lengths, minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def quantiles(self) -> Mapping[str, int]:
        """Return the quantiles: the smallest lengths that these fractions of the lines do not exceed."""
        cumulative = np.cumsum(self._counts)
        ranks = [max(1, int(np.ceil(fraction * cumulative[-1]))) for fraction in QUANTILES.values()]
        lengths = np.searchsorted(cumulative, ranks)
        return {name: int(length) for name, length in zip(QUANTILES, lengths, strict=True)}
