"""Detection of pairs whose source and target are swapped, by character bigrams.

Bigrams of neighbouring characters, case and spaces normalised, are counted on each side of the first pairs of
the corpus. The score of a line is the sum over its bigrams of log p(other side) - log p(own side). If a pair
is itself part of the counts, both its lines are subtracted first, so that only the other pairs judge it.
A pair is suspected if source and target together score above ``MIN_SCORE`` in total and above
``MIN_SCORE_PER_BIGRAM`` per bigram. Where both sides are in one language, no pair is suspected.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.prepare.findings import Finding
from data.prepare.unusual_characters import code_points

SAMPLE_PAIRS = 20_000
"""Number of pairs whose bigrams are counted."""
BITS = 16
BINS = 1 << BITS
"""Number of counters per side; bigrams are hashed to counters, so that some share one."""
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
PRIOR = 0.5
"""Pseudo-count added to each counter."""
MAX_LOG_RATIO = 3.0
"""Bound on the contribution of one bigram, in either direction."""
MIN_SCORE_PER_BIGRAM = 0.1
MIN_SCORE = 10.0

Floats = NDArray[np.float64]
Bins = NDArray[np.int64]


class SwappedSides:
    """Detector of swapped pairs, fed with blocks of normalised lines.

    Blocks are held back until ``SAMPLE_PAIRS`` pairs have been counted.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Sequence[str], Sequence[str], int, Finding]] = []
        self._counts: tuple[Floats, Floats] | None = None

    def add(self, src: Sequence[str], tgt: Sequence[str], first: int, finding: Finding) -> None:
        """Search a block of pairs, at once or when enough pairs have been counted.

        Args:
            src: normalised source lines.
            tgt: normalised target lines.
            first: line number of the block's first pair.
            finding: suspected pairs are added to it.
        """
        if self._counts is not None:
            self._search(src, tgt, first, finding, in_sample=False)
            return
        self._waiting.append((src, tgt, first, finding))
        if sum(len(block[0]) for block in self._waiting) >= SAMPLE_PAIRS:
            self.finish()

    def finish(self) -> None:
        """Count the bigrams of the waiting blocks and search these; call it after the last block."""
        if self._counts is None and self._waiting:
            counts = [np.zeros(BINS), np.zeros(BINS)]
            for src, tgt, _, _ in self._waiting:
                for count, lines in zip(counts, (src, tgt), strict=True):
                    count += np.bincount(_bigrams(lines).bins, minlength=BINS)
            self._counts = counts[0], counts[1]
        for block in self._waiting:
            self._search(*block, in_sample=True)
        self._waiting.clear()

    def _search(
        self, src: Sequence[str], tgt: Sequence[str], first: int, finding: Finding, *, in_sample: bool
    ) -> None:
        """Score the pairs of a block; ``in_sample``: its own bigrams are part of the counts."""
        assert self._counts is not None
        src_counts, tgt_counts = self._counts
        src_bigrams, tgt_bigrams = _bigrams(src), _bigrams(tgt)
        score = np.zeros(len(src))
        for bigrams, opposite, own_counts, other_counts in (
            (src_bigrams, tgt_bigrams, src_counts, tgt_counts),
            (tgt_bigrams, src_bigrams, tgt_counts, src_counts),
        ):
            own, other = own_counts[bigrams.bins], other_counts[bigrams.bins]
            if in_sample:
                own, other = own - bigrams.count_in(bigrams), other - bigrams.count_in(opposite)
            ratios = _log_ratios(own, other, own_counts, other_counts)
            score += np.bincount(bigrams.rows, weights=ratios, minlength=len(src))
        size = sum(np.bincount(bigrams.rows, minlength=len(src)) for bigrams in (src_bigrams, tgt_bigrams))
        suspected = (score > MIN_SCORE) & (score > MIN_SCORE_PER_BIGRAM * size)
        finding.add_rows(np.flatnonzero(suspected), first)


class Bigrams(NamedTuple):
    """The character bigrams of a block of lines: counter and index of the line for each, both (N,)."""

    bins: Bins
    rows: Bins

    def count_in(self, other: "Bigrams") -> Bins:
        """Count how often each bigram occurs in the same line of ``other``; returns (N,)."""
        wanted = self.rows * BINS + self.bins
        keys, counts = np.unique(other.rows * BINS + other.bins, return_counts=True)
        if not len(keys):
            return np.zeros_like(wanted)
        positions = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        return np.where(keys[positions] == wanted, counts[positions], 0)


def _log_ratios(own: Floats, other: Floats, own_counts: Floats, other_counts: Floats) -> Floats:
    """Compute log p(other side) - log p(own side) per bigram, from its counts and all counts of each side."""
    ratios: Floats = np.log((other + PRIOR) / (other_counts.sum() + PRIOR * BINS))
    ratios -= np.log((own + PRIOR) / (own_counts.sum() + PRIOR * BINS))
    ratios[(own == 0) & (other == 0)] = 0  # unseen on both sides: the sizes of the sides alone would decide
    return ratios.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _bigrams(lines: Sequence[str]) -> Bigrams:
    """Extract the bigrams of all lines, in order; none spans two lines."""
    codes, rows = code_points(lines)
    wide = codes.astype(np.uint64) * HASH_MULTIPLIER
    bins = (wide[:-1] * HASH_MULTIPLIER + wide[1:]) >> np.uint64(64 - BITS)
    inside = (codes[:-1] != 10) & (codes[1:] != 10)  # 10 is the line feed after each line
    return Bigrams(bins[inside].astype(np.int64), rows[:-1][inside])
