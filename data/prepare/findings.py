"""What a check found: how often, and on which lines first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHOWN = 5
"""Line numbers that are kept of each finding."""

Counts = NDArray[np.int64]


@dataclass(kw_only=True)
class Finding:
    """Lines with one thing in common."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    """Numbers of the first ones, from 1 on; they run on from one file of a side to the next."""
    characters: dict[str, int] = field(default_factory=dict)
    """How often each character was seen that made these lines stand out, by code point ("U+00A0")."""

    def add(self, lines: Iterable[int], count: int) -> None:
        """Count ``count`` more lines, of which ``lines`` are at least the first, in order."""
        self.count += count
        self.lines += [int(line) for line in lines][: SHOWN - len(self.lines)]

    def add_rows(self, rows: Counts, first: int) -> None:
        """Count rows given by their indices in a block that begins with line ``first``."""
        self.add(rows[:SHOWN] + first, len(rows))

    def to_json(self) -> dict[str, Any]:
        """Count and lines, and the characters where there are any."""
        common = dict(sorted(self.characters.items(), key=lambda item: (-item[1], item[0]))[:SHOWN])
        return {"count": self.count, "lines": self.lines} | ({"characters": common} if common else {})


QUANTILES = {"min": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


class Lengths:
    """How many lines have each length; memory grows with the longest line alone."""

    def __init__(self) -> None:
        self._counts: Counts = np.zeros(1, dtype=np.int64)

    def add(self, lengths: Counts) -> None:
        """Count the lines of a block."""
        more = np.bincount(lengths, minlength=len(self._counts))
        more[: len(self._counts)] += self._counts
        self._counts = more

    def quantiles(self) -> Mapping[str, int]:
        """The least length that each share of the lines does not exceed."""
        reached = np.cumsum(self._counts)
        ranks = [max(1, int(np.ceil(share * reached[-1]))) for share in QUANTILES.values()]
        found = np.searchsorted(reached, ranks)
        return {name: int(length) for name, length in zip(QUANTILES, found, strict=True)}

    def mean(self) -> float:
        """The average length."""
        return float(self._counts @ np.arange(len(self._counts)) / self._counts.sum())
