"""Suspect pairs whose sides are swapped: their letters follow each other as in the other side's language.

The statistic: in the first pairs of the corpus it is counted how often each two neighbouring characters (case
and spaces normalised) stand on either side. A line's score is the sum, over its own neighbours, of
log p(other side) - log p(own side); where its pair is itself in the counts, both lines are taken out first,
so it is judged by the rest of each side. A pair is suspected where source and target together score above
``MARGIN`` for each two neighbours and above ``EVIDENCE`` in all. Where the sides look alike, nothing is.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.prepare.findings import Finding
from data.prepare.unusual_characters import codes_of

SAMPLE = 20_000
"""Pairs that the sides are learned from."""
BITS = 16
BINS = 1 << BITS
"""Pairs of characters share so many counters."""
HASH = np.uint64(0x9E3779B97F4A7C15)
PRIOR = 0.5
"""Added to each count; a pair of characters that neither side has says nothing."""
LIMIT = 3.0
"""What one pair of characters may say, either way."""
MARGIN = 0.1
EVIDENCE = 10.0

Floats = NDArray[np.float64]
Bins = NDArray[np.int64]


class SwappedSides:
    """Finds swapped pairs in blocks of normalised lines; the first blocks wait until enough is learned."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Sequence[str], Sequence[str], int, Finding]] = []
        self._learned: tuple[Floats, Floats] | None = None

    def add(self, src: Sequence[str], tgt: Sequence[str], first: int, finding: Finding) -> None:
        """Look through a block from line number ``first`` on; what is found goes to ``finding``."""
        if self._learned is not None:
            self._judge(src, tgt, first, finding, known=False)
            return
        self._waiting.append((src, tgt, first, finding))
        if sum(len(block[0]) for block in self._waiting) >= SAMPLE:
            self.finish()

    def finish(self) -> None:
        """Learn from the blocks that wait, and judge them; called once more where no further block comes."""
        if self._learned is None and self._waiting:
            counts = [np.zeros(BINS), np.zeros(BINS)]
            for src, tgt, _, _ in self._waiting:
                for count, lines in zip(counts, (src, tgt), strict=True):
                    count += np.bincount(_neighbours(lines).bins, minlength=BINS)
            self._learned = counts[0], counts[1]
        for block in self._waiting:
            self._judge(*block, known=True)
        self._waiting.clear()

    def _judge(
        self, src: Sequence[str], tgt: Sequence[str], first: int, finding: Finding, *, known: bool
    ) -> None:
        """Score a block; ``known`` where the counts hold it already."""
        assert self._learned is not None
        ours, theirs = self._learned
        sides = _neighbours(src), _neighbours(tgt)
        score = np.zeros(len(src))
        for here, there, own, other in ((*sides, ours, theirs), (*sides[::-1], theirs, ours)):
            mine, yours = own[here.bins], other[here.bins]
            if known:
                mine, yours = mine - here.shared(here), yours - here.shared(there)
            score += np.bincount(here.rows, weights=_evidence(mine, yours, own, other), minlength=len(src))
        size = sum(np.bincount(side.rows, minlength=len(src)) for side in sides)
        finding.add_rows(np.flatnonzero((score > EVIDENCE) & (score > MARGIN * size)), first)


class Neighbours(NamedTuple):
    """Each two neighbouring characters of a block of lines: their counter, and the row of their line."""

    bins: Bins
    rows: Bins

    def shared(self, other: "Neighbours") -> Bins:
        """How often each of them stands in the same row of ``other``."""
        keys, counts = np.unique(other.rows * BINS + other.bins, return_counts=True)
        wanted = self.rows * BINS + self.bins
        places = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
        return np.where(keys[places] == wanted, counts[places], 0) if len(keys) else np.zeros_like(wanted)


def _evidence(mine: Floats, yours: Floats, own: Floats, other: Floats) -> Floats:
    """What neighbours say for the other side, from how often they stand on their own side and on that one."""
    said: Floats = np.log((yours + PRIOR) / (other.sum() + PRIOR * BINS))
    said -= np.log((mine + PRIOR) / (own.sum() + PRIOR * BINS))
    said[(mine == 0) & (yours == 0)] = 0
    return said.clip(-LIMIT, LIMIT)


def _neighbours(lines: Sequence[str]) -> Neighbours:
    """The neighbours of all lines, in order."""
    codes, rows = codes_of(lines)
    wide = codes.astype(np.uint64) * HASH
    bins = (wide[:-1] * HASH + wide[1:]) >> np.uint64(64 - BITS)
    inside = (codes[:-1] != 10) & (codes[1:] != 10)
    return Neighbours(bins[inside].astype(np.int64), rows[:-1][inside])
