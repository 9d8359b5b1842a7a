"""Measurements of one split of a raw corpus, block by block."""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.prepare.findings import MAX_EXAMPLES, Finding, IntArray, LengthHistogram
from data.prepare.line_hashes import Hashes, hash_array, hash_text, is_repeat, normalise, pair_hashes
from data.prepare.unusual_characters import UnusualCharacters
from data.text.characters import count_words

SMOOTHING = 10
"""Characters added to both lengths of a pair, so that short sentences are not outliers."""
OUTLIER_FACTOR = 3.0
"""A pair is an outlier if its length ratio differs from the split's median by more than this factor."""
BIN_WIDTH = 0.02
"""Bin width of the histogram of log ratios."""


class SideCheck:
    """Measurements of one side: lengths, unusual characters, repeated lines."""

    def __init__(self) -> None:
        self.words, self.characters = LengthHistogram(), LengthHistogram()
        self.unusual = UnusualCharacters()
        self.repeated = Finding()
        """Lines whose text occurs earlier on this side."""
        self._hashes = bytearray()

    def add(self, lines: Sequence[str], first: int) -> list[str]:
        """Measure a block of lines.

        Args:
            lines: the block.
            first: line number of its first line.

        Returns:
            The normalised lines.
        """
        self.words.add(np.array([count_words(line) for line in lines]))
        self.characters.add(np.array([len(line) for line in lines]))
        self.unusual.add(lines, first)
        texts = [normalise(line) for line in lines]
        for number, text in enumerate(texts, start=first):
            self._hashes += hash_text(text or f"\n{id(self)} {number}")  # blank lines are no repeats
        return texts

    def hashes(self) -> Hashes:
        """Return the hashes of all normalised lines, (N,); each blank line has a different one."""
        return hash_array(self._hashes)

    def to_json(self) -> dict[str, Any]:
        """Return the measurements, without the hashes."""
        return {
            "words": self.words.quantiles(),
            "characters": self.characters.quantiles(),
            "repeated": self.repeated.to_json(),
            "unusual": {kind: f.to_json() for kind, f in self.unusual.findings.items() if f.count},
        }


class LengthRatios:
    """Histogram of the length ratios target / source, in characters, with the first lines of each bin."""

    def __init__(self) -> None:
        self._bins: dict[int, Finding] = {}

    def add(self, src: Sequence[str], tgt: Sequence[str], first: int) -> None:
        """Count the pairs of a block that begins with line ``first``, except those with a blank side."""
        lengths = np.array(
            [(len(left.strip()), len(right.strip())) for left, right in zip(src, tgt, strict=True)]
        )
        rows = np.flatnonzero(lengths.all(axis=1))
        log_ratios = np.log(lengths[rows] + SMOOTHING) @ np.array([-1.0, 1.0])
        bins: NDArray[np.int64] = np.rint(log_ratios / BIN_WIDTH).astype(np.int64)
        for index in np.unique(bins):
            self._bins.setdefault(int(index), Finding()).add_rows(rows[bins == index], first)

    def median(self) -> float:
        """Return the median ratio, rounded to a bin; 1 if there is no pair."""
        if not self._bins:
            return 1.0
        indices = sorted(self._bins)
        cumulative = np.cumsum([self._bins[index].count for index in indices])
        return float(np.exp(BIN_WIDTH * indices[int(np.searchsorted(cumulative, cumulative[-1] / 2))]))

    def outliers(self) -> Finding:
        """Return the pairs whose ratio differs from the median by more than ``OUTLIER_FACTOR``."""
        centre, limit = log(self.median()), log(OUTLIER_FACTOR)
        far = [finding for index, finding in self._bins.items() if abs(BIN_WIDTH * index - centre) > limit]
        outliers = Finding()
        outliers.add(sorted(line for each in far for line in each.lines), sum(each.count for each in far))
        return outliers


class SplitCheck:
    """Measurements of one split: both sides, and findings about its pairs."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        """For each source: its paths, and its number of pairs."""
        self.src, self.tgt = SideCheck(), SideCheck()
        self.ratios = LengthRatios()
        self.empty, self.copies, self.duplicates, self.swapped = (Finding() for _ in range(4))
        self.pairs = 0
        self._headers: list[int] = []
        """How many pairs come before each header line."""

    @property
    def sides(self) -> dict[str, SideCheck]:
        """The two sides by name."""
        return {"src": self.src, "tgt": self.tgt}

    @property
    def next_line(self) -> int:
        """Line number of the next pair; numbering continues from one file to the next."""
        return self.pairs + len(self._headers) + 1

    def skip_header(self) -> None:
        """Count a header line before the next pair."""
        self._headers.append(self.pairs)

    def add_lines(self, finding: Finding, rows: IntArray) -> None:
        """Add pairs to a finding.

        Args:
            finding: changed.
            rows: ascending indices of pairs of the split, from 0.
        """
        shown = rows[:MAX_EXAMPLES]
        finding.add(shown + 1 + np.searchsorted(self._headers, shown, side="right"), len(rows))

    def add(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[list[str], list[str]]:
        """Measure the next block of pairs; returns its normalised sources and targets."""
        first = self.next_line
        self.pairs += len(src)
        texts = self.src.add(src, first), self.tgt.add(tgt, first)
        self.ratios.add(src, tgt, first)
        blank = np.array([not (left and right) for left, right in zip(*texts, strict=True)])
        same = np.array([left == right for left, right in zip(src, tgt, strict=True)])
        self.empty.add_rows(np.flatnonzero(blank), first)
        self.copies.add_rows(np.flatnonzero(same & ~blank), first)
        return texts

    def finish(self) -> None:
        """Find repeated lines and pairs; call it after the last block."""
        for side in self.sides.values():
            self.add_lines(side.repeated, np.flatnonzero(is_repeat(side.hashes())))
        pairs = pair_hashes(self.src.hashes(), self.tgt.hashes())
        self.add_lines(self.duplicates, np.flatnonzero(is_repeat(pairs)))

    def to_json(self) -> dict[str, Any]:
        """Return all measurements and findings."""
        return {
            "pairs": self.pairs,
            "files": self.files,
            **{name: side.to_json() for name, side in self.sides.items()},
            "median_ratio": round(self.ratios.median(), 2),
            "ratio_outliers": self.ratios.outliers().to_json(),
            "empty": self.empty.to_json(),
            "copies": self.copies.to_json(),
            "duplicates": self.duplicates.to_json(),
            "swapped": self.swapped.to_json(),
        }
