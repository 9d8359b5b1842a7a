"""Check of a raw corpus in one pass; memory holds 32 bytes per pair and no text."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.files import ProgressCallback, no_progress
from data.formats import Source
from data.forms import SAMPLE_LINES, describe_beside
from data.forms import Finding as Form
from data.prepare import Hashes, Mask, hash_array, hash_text, is_repeat, pair_hashes
from data.text import count_words, display_name, find_unusual, letters_of

# Findings of a corpus check: count and first lines of each.


MAX_EXAMPLES = 5
"""Number of lines, and of characters, that are reported per finding."""
QUANTILES = {"min": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}

IntArray = NDArray[np.int64]


@dataclass(kw_only=True)
class Finding:
    """Lines with one property in common."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    """Numbers of the first such lines, from 1, continued from one file of a side to the next."""
    characters: Counter[str] = field(default_factory=Counter)
    """How often each character that caused the finding occurs, by code point ("U+00A0")."""

    def add(self, lines: IntArray) -> None:
        """Add lines by their ascending numbers."""
        self.count += len(lines)
        self.lines += lines[: MAX_EXAMPLES - len(self.lines)].tolist()

    def to_json(self) -> dict[str, Any]:
        """Return count and lines, and the most frequent characters if there are any."""
        common = dict(sorted(self.characters.items(), key=lambda item: (-item[1], item[0]))[:MAX_EXAMPLES])
        return {"count": self.count, "lines": self.lines} | ({"characters": common} if common else {})


# Detection of pairs whose source and target are swapped, by character bigrams.
#
# A line scores the sum of log p(other side) - log p(this side) over its bigrams. A pair is suspected if
# source and target together exceed ``MIN_SCORE`` in total and ``MIN_SCORE_PER_BIGRAM`` per bigram. Where both
# sides are in one language, no pair is suspected.


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


class SwappedSides:
    """Detector of swapped pairs, from the bigrams of all pairs up to the end of a block."""

    def __init__(self) -> None:
        self._counts = np.full((2, BINS), PRIOR)

    def find(self, src: Sequence[str], tgt: Sequence[str]) -> Mask:
        """Return True at the suspected pairs of a block of N lines, (N,)."""
        sides = _bigrams(src), _bigrams(tgt)
        for counts, (bins, _) in zip(self._counts, sides, strict=True):
            counts += np.bincount(bins, minlength=BINS)
        src_log, tgt_log = np.log(self._counts / self._counts.sum(axis=1, keepdims=True))
        ratios = tgt_log - src_log
        ratios[(self._counts == PRIOR).all(axis=0)] = (
            0  # otherwise the sums of the counts would decide about unseen bigrams
        )
        ratios = ratios.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        score, size = np.zeros(len(src)), np.zeros(len(src))
        for (bins, rows), sign in zip(sides, (1, -1), strict=True):
            score += np.bincount(rows, weights=sign * ratios[bins], minlength=len(src))
            size += np.bincount(rows, minlength=len(src))
        suspected: Mask = (score > MIN_SCORE) & (score > MIN_SCORE_PER_BIGRAM * size)
        return suspected


def _bigrams(lines: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return counter and index of the line of each bigram of a block of lines; none spans two lines."""
    text = "".join(f"{line}\n" for line in lines)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    rows = np.repeat(np.arange(len(lines)), [len(line) + 1 for line in lines])
    wide = codes.astype(np.uint64) * HASH_MULTIPLIER
    bins = (wide[:-1] * HASH_MULTIPLIER + wide[1:]) >> np.uint64(64 - BITS)
    inside = (codes[:-1] != 10) & (codes[1:] != 10)  # 10 is the line feed after each line
    return bins[inside].astype(np.int64), rows[:-1][inside]


# Measurements of one split of a raw corpus: arrays with an entry per pair, then findings.


SMOOTHING = 10
"""Characters added to both lengths of a pair, so that short sentences are not outliers."""
OUTLIER_FACTOR = 3.0
"""A pair is an outlier if its length ratio differs from the split's median by more than this factor."""


class SideCheck:
    """Measurements of one side: lengths, unusual characters, repeated lines."""

    def __init__(self) -> None:
        self.repeated = Finding()
        """Lines whose text occurs earlier on this side."""
        self.unusual = defaultdict[str, Finding](Finding)
        self.sample: list[str] = []
        self.lengths = {"words": array("i"), "characters": array("i")}
        self.forms: list[Form] = []
        """Warnings about the form of the text."""
        self._hashes = bytearray()

    def add(self, lines: Sequence[str], numbers: IntArray) -> list[str]:
        """Measure a block of lines; returns their letters."""
        self.lengths["words"].extend(map(count_words, lines))
        self.lengths["characters"].extend(map(len, lines))
        self.sample += lines[: SAMPLE_LINES - len(self.sample)]
        for kind, by_row in find_unusual(lines).items():
            self.unusual[kind].add(numbers[list(by_row)])
            codes = (f"U+{ord(character):04X}" for characters in by_row.values() for character in characters)
            self.unusual[kind].characters.update(codes)
        texts = list(map(letters_of, lines))
        for number, text in zip(numbers.tolist(), texts, strict=True):
            self._hashes += hash_text(text or f"\n{id(self)} {number}")  # blank lines are no repeats
        return texts

    def hashes(self) -> Hashes:
        """Return the hashes of the letters of all lines, (N,); each blank line has a different one."""
        return hash_array(self._hashes)

    def quantiles(self) -> dict[str, dict[str, int]]:
        """Return, by unit, the smallest lengths that the fractions ``QUANTILES`` of the lines do not pass."""
        quantiles = {}
        for unit, lengths in self.lengths.items():
            values = np.quantile(np.array(lengths), [*QUANTILES.values()], method="inverted_cdf")
            quantiles[unit] = dict(zip(QUANTILES, values.tolist(), strict=True))
        return quantiles

    def to_json(self) -> dict[str, Any]:
        """Return the measurements."""
        unusual = {kind: finding.to_json() for kind, finding in self.unusual.items()}
        repeated = self.repeated.to_json()
        return {
            **self.quantiles(),
            "repeated": repeated,
            "unusual": unusual,
            "forms": list(map(str, self.forms)),
        }


class SplitCheck:
    """Measurements of one split: both sides, and findings about its pairs."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        self.sides = {"src": SideCheck(), "tgt": SideCheck()}
        self.findings = {
            name: Finding() for name in ("ratio_outliers", "empty", "copies", "duplicates", "swapped")
        }
        self.overlap: dict[str, Finding] = {}
        """By side, except of train: lines whose text occurs on that side of train too."""
        self.pairs = 0
        self.median_ratio = 1.0
        self._headers: list[int] = []
        self._blank = bytearray()

    def read(self, source: Source, swapped: SwappedSides, report: Callable[[int], None]) -> None:
        """Measure all pairs of a source; ``report`` is called with the number of pairs read so far."""
        before = self.pairs
        self._headers += [self.pairs] * source.header_lines
        for block in source.blocks(keep_broken=True):
            lines = self.line_numbers(np.arange(self.pairs, self.pairs + len(block[0])))
            self.pairs += len(lines)
            texts = [side.add(part, lines) for side, part in zip(self.sides.values(), block, strict=True)]
            blank = np.array([not (left and right) for left, right in zip(*texts, strict=True)], dtype=bool)
            same = np.array([left == right for left, right in zip(*block, strict=True)], dtype=bool)
            self._blank += blank.tobytes()
            self.findings["empty"].add(lines[blank])
            self.findings["copies"].add(lines[same & ~blank])
            self.findings["swapped"].add(lines[swapped.find(texts[0], texts[1])])
            report(self.pairs)
        paths = [display_name(path) for path in source.paths]
        self.files.append({"paths": paths, "pairs": self.pairs - before})

    def finish(self, train: "SplitCheck | None") -> None:
        """Complete the measurements, after the last source."""
        for name, side in self.sides.items():
            other = train.sides[name].sample if train else ()
            side.forms = describe_beside(side.sample, other)
            side.repeated.add(self._lines_at(is_repeat(side.hashes())))
            if train:
                self.overlap[name] = Finding()
                self.overlap[name].add(self._lines_at(np.isin(side.hashes(), train.sides[name].hashes())))
        pairs = pair_hashes(*(side.hashes() for side in self.sides.values()))
        self.findings["duplicates"].add(self._lines_at(is_repeat(pairs)))
        src, tgt = (np.log(np.array(s.lengths["characters"]) + SMOOTHING) for s in self.sides.values())
        ratios, full = tgt - src, ~np.frombuffer(self._blank, dtype=bool)
        if full.any():
            median = float(np.median(ratios[full]))
            self.median_ratio = float(np.exp(median))
            outliers = full & (abs(ratios - median) > log(OUTLIER_FACTOR))
            self.findings["ratio_outliers"].add(self._lines_at(outliers))

    def line_numbers(self, rows: IntArray) -> IntArray:
        """Return the numbers of the lines of pairs, given by their indices in the split."""
        return rows + 1 + np.searchsorted(self._headers, rows, side="right")

    def _lines_at(self, mask: Mask) -> IntArray:
        return self.line_numbers(np.flatnonzero(mask))

    def to_json(self) -> dict[str, Any]:
        """Return all measurements and findings."""
        overlap = {side: finding.to_json() for side, finding in self.overlap.items()}
        return {
            "pairs": self.pairs,
            "files": self.files,
            **{name: side.to_json() for name, side in self.sides.items()},
            "median_ratio": round(self.median_ratio, 2),
            **{name: finding.to_json() for name, finding in self.findings.items()},
            **({"overlap": overlap} if overlap else {}),
        }


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    """Measurements of each split."""

    splits: Mapping[str, SplitCheck]

    @property
    def num_unusable(self) -> int:
        """Pairs that a run would reject: with a blank side, or not UTF-8."""
        findings = (
            finding
            for split in self.splits.values()
            for finding in (
                split.findings["empty"],
                *(s.unusual.get("not text") for s in split.sides.values()),
            )
        )
        return sum(finding.count for finding in findings if finding)

    def to_json(self) -> dict[str, Any]:
        """Return all findings by split."""
        return {name: split.to_json() for name, split in self.splits.items()}


def check_corpus(
    splits: Mapping[str, Sequence[Source]], *, progress: ProgressCallback = no_progress
) -> CorpusCheck:
    """Measure each split and find suspicious lines; each file is read once.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line breaks the format, the two files of a source differ in length, or a split is empty.
    """
    swapped, checks = SwappedSides(), dict[str, SplitCheck]()
    for name, sources in splits.items():
        label, split = f"reading {name}" if name else "reading", SplitCheck()
        progress(label, 0, None)
        for source in sources:
            split.read(source, swapped, lambda done, label=label: progress(label, done, None))  # type: ignore[misc]
        if not split.pairs:
            raise ValueError(f"{', '.join(split.files[0]['paths'])}: it has only a header line, no pairs")
        split.finish(next(iter(checks.values()), None))
        checks[name] = split
    return CorpusCheck(splits=checks)
