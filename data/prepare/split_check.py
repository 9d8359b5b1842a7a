"""What is measured of one split of a raw corpus, block by block."""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.prepare.findings import Finding, Lengths
from data.prepare.line_hashes import Keys, as_keys, key_of, normalised, pair_keys, repeats
from data.prepare.unusual_characters import UnusualCharacters
from data.text.characters import count_words

SMOOTHING = 10
"""Characters added to both lengths before they are compared, so that a short answer is no outlier."""
OUTLIER = 3.0
"""Times the split's median ratio of lengths, either way, beyond which a pair is an outlier."""
BIN = 0.02
"""Width of the bins that logarithms of ratios are counted in."""


class SideCheck:
    """One side: lengths, odd characters, and the keys of its texts."""

    def __init__(self) -> None:
        self.words, self.characters = Lengths(), Lengths()
        self.unusual = UnusualCharacters()
        self.repeated = Finding()
        """Lines whose text stood before on this side."""
        self._keys = bytearray()

    def add(self, lines: Sequence[str], first: int) -> list[str]:
        """Measure a block whose first line has the number ``first``; gives its normalised lines."""
        self.words.add(np.array([count_words(line) for line in lines]))
        self.characters.add(np.array([len(line) for line in lines]))
        self.unusual.add(lines, first)
        texts = [normalised(line) for line in lines]
        for number, text in enumerate(texts, start=first):
            self._keys += key_of(text or f"\n{id(self)} {number}")  # a blank repeats nothing
        return texts

    def keys(self) -> Keys:
        """The keys of all lines."""
        return as_keys(self._keys)

    def to_json(self) -> dict[str, Any]:
        """Everything but the keys."""
        return {
            "words": self.words.quantiles(),
            "characters": self.characters.quantiles(),
            "repeated": self.repeated.to_json(),
            "unusual": {kind: f.to_json() for kind, f in self.unusual.findings.items() if f.count},
        }


class Ratios:
    """Lengths of the target in characters over those of the source; all are counted, the first ones kept."""

    def __init__(self) -> None:
        self._bins: dict[int, Finding] = {}

    def add(self, src: Sequence[str], tgt: Sequence[str], first: int) -> None:
        """Count a block of lines; pairs with a blank side have no ratio."""
        pairs = np.array(
            [(len(left.strip()), len(right.strip())) for left, right in zip(src, tgt, strict=True)]
        )
        rows = np.flatnonzero(pairs.all(axis=1))
        logs = np.log(pairs[rows] + SMOOTHING) @ np.array([-1.0, 1.0])
        bins: NDArray[np.int64] = np.rint(logs / BIN).astype(np.int64)
        for number in np.unique(bins):
            self._bins.setdefault(int(number), Finding()).add_rows(rows[bins == number], first)

    def median(self) -> float:
        """The median ratio, to within a bin; 1 where there is no pair."""
        if not self._bins:
            return 1.0
        numbers = sorted(self._bins)
        reached = np.cumsum([self._bins[number].count for number in numbers])
        return float(np.exp(BIN * numbers[int(np.searchsorted(reached, reached[-1] / 2))]))

    def outliers(self) -> Finding:
        """The pairs that are more than ``OUTLIER`` times longer on a side than is usual here."""
        centre, found = log(self.median()), Finding()
        far = [f for number, f in self._bins.items() if abs(BIN * number - centre) > log(OUTLIER)]
        found.add(sorted(line for each in far for line in each.lines), sum(each.count for each in far))
        return found


class SplitCheck:
    """One split: its sides, and what is wrong with its pairs."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        """The paths that were read, together with how many pairs came of them."""
        self.src, self.tgt = SideCheck(), SideCheck()
        self.ratios = Ratios()
        self.empty, self.copies, self.duplicates, self.swapped = (Finding() for _ in range(4))
        self.pairs = 0

    @property
    def sides(self) -> dict[str, SideCheck]:
        """Both sides by name."""
        return {"src": self.src, "tgt": self.tgt}

    def add(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[list[str], list[str]]:
        """Measure the next block; gives its normalised lines."""
        first = self.pairs + 1
        self.pairs += len(src)
        texts = self.src.add(src, first), self.tgt.add(tgt, first)
        self.ratios.add(src, tgt, first)
        blank = np.array([not (left and right) for left, right in zip(*texts, strict=True)])
        same = np.array([left == right for left, right in zip(src, tgt, strict=True)])
        self.empty.add_rows(np.flatnonzero(blank), first)
        self.copies.add_rows(np.flatnonzero(same & ~blank), first)
        return texts

    def finish(self) -> None:
        """Find the repeats, once all blocks are in."""
        for side in self.sides.values():
            side.repeated.add_rows(np.flatnonzero(repeats(side.keys())), 1)
        self.duplicates.add_rows(np.flatnonzero(repeats(pair_keys(self.src.keys(), self.tgt.keys()))), 1)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
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
