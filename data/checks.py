"""Check of a raw corpus in one pass; memory holds 16 bytes per pair and no text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.files import PAIRS_PER_CALL, ProgressCallback, no_progress
from data.formats import PairRecord, Source
from data.split import Hashes, hash_array, hash_text, is_repeat, normalise, pair_hashes
from data.text import count_words, display_name

# Findings of a corpus check (count and first lines of each), and statistics of line lengths.


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


# Search for unusual characters in blocks of lines, by a lookup table over all code points.


BROKEN = "not text"
"""The kind of lines that no run can read."""
KINDS: Mapping[str, str] = {
    BROKEN: "\ud800-\udfff",  # also what bytes that are not UTF-8 are read as
    "control": "\x00-\x08 \x0e-\x1b \x1f \x7f-\x84 \x86-\x9f",
    "line break": "\x0b-\x0d \x1c-\x1e \x85 \u2028-\u2029",
    "replacement": "\ufffd",
    "private use": "\ue000-\uf8ff \U000f0000-\U000ffffd \U00100000-\U0010fffd",
    "no character": "\ufdd0-\ufdef \ufffe-\uffff",
    "direction mark": "\u061c \u200e-\u200f \u202a-\u202e \u2066-\u2069",
    "invisible": "\xad \u200b \u2060 \ufeff",
    "space": "\xa0 \u1680 \u2000-\u200a \u202f \u205f",
}
"""Kinds of unusual characters, each as space-separated characters and ranges."""
MIXED, MOJIBAKE = "mixed script", "mojibake"
"""Kinds that depend on two neighbours: Latin, Greek and Cyrillic letters in one word; UTF-8 read as Latin-1
or Windows-1252."""

_SCRIPTS = ("A-Z a-z \xc0-\xd6 \xd8-\xf6 \xf8-\u024f", "\u0370-\u03ff", "\u0400-\u052f")
_LEAD = "\xc2-\xc3"
_TRAIL = (
    "\x80-\xbf \u0152-\u0153 \u0160-\u0161 \u0178 \u017d-\u017e \u0192 \u02c6 \u02dc "
    "\u2013-\u203a \u20ac \u2122"
)
"""The second byte of a two-byte UTF-8 letter, decoded as Latin-1 or Windows-1252."""

Codes = NDArray[np.uint32]
Rows = NDArray[np.int64]


def code_points(lines: Sequence[str]) -> tuple[Codes, Rows]:
    """Concatenate lines to an array of code points.

    Args:
        lines: N lines without line feeds.

    Returns:
        The code points with a line feed after each line, (C,), and for each the index of its line, (C,).
    """
    text = "".join(f"{line}\n" for line in lines)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    lengths = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)) + 1
    return codes, np.repeat(np.arange(len(lines)), lengths)


class UnusualCharacters:
    """Findings of unusual characters on one side of a corpus, by kind."""

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {name: Finding() for name in (*KINDS, MIXED, MOJIBAKE)}

    def add(self, lines: Sequence[str], first: int) -> None:
        """Search a block of lines; ``first`` is the line number of its first line."""
        codes, rows = code_points(lines)
        kinds = _groups_by_code(tuple(KINDS.values()))[codes]
        for number in np.unique(kinds[kinds > 0]):
            self._count(list(KINDS)[number - 1], np.flatnonzero(kinds == number), codes, rows, first)
        scripts = _groups_by_code(_SCRIPTS)[codes]
        left, right = scripts[:-1], scripts[1:]
        self._count(MIXED, np.flatnonzero((left > 0) & (right > 0) & (left != right)) + 1, codes, rows, first)
        lead = _groups_by_code((_LEAD,))[codes[:-1]] > 0
        trail = _groups_by_code((_TRAIL,))[codes[1:]] > 0
        quote = (codes[:-1] == ord("â")) & (codes[1:] == ord("€"))
        self._count(MOJIBAKE, np.flatnonzero((lead & trail) | quote), codes, rows, first)

    def _count(self, kind: str, positions: Rows, codes: Codes, rows: Rows, first: int) -> None:
        """Add the characters at ``positions`` of ``codes``, and their lines, to the finding of ``kind``."""
        if not len(positions):
            return
        finding = self.findings[kind]
        finding.add_rows(np.unique(rows[positions]), first)
        for code, count in zip(*np.unique(codes[positions], return_counts=True), strict=True):
            name = f"U+{code:04X}"
            finding.characters[name] = finding.characters.get(name, 0) + int(count)


@cache
def _groups_by_code(groups: tuple[str, ...]) -> NDArray[np.uint8]:
    """Build the table from code points to groups.

    Args:
        groups: each as space-separated characters and ranges ("a-z").

    Returns:
        The number of the group, from 1, for each code point; 0 for those in none, (0x110000,).
    """
    table = np.zeros(0x110000, dtype=np.uint8)
    for number, ranges in enumerate(groups, start=1):
        for bounds in ranges.split(" "):
            table[ord(bounds[0]) : ord(bounds[-1]) + 1] = number
    return table


# Detection of pairs whose source and target are swapped, by character bigrams.
#
# Bigrams of neighbouring characters, case and spaces normalised, are counted on each side of the first pairs
# of the corpus. The score of a line is the sum over its bigrams of log p(other side) - log p(own side). If a
# pair is itself part of the counts, both its lines are subtracted first, so that only the other pairs judge
# it. A pair is suspected if source and target together score above ``MIN_SCORE`` in total and above
# ``MIN_SCORE_PER_BIGRAM`` per bigram. Where both sides are in one language, no pair is suspected.


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


# Measurements of one split of a raw corpus, block by block.


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


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    """Measurements of each split, and the overlap of each with the first one."""

    splits: Mapping[str, SplitCheck]
    overlap: Mapping[str, Mapping[str, Finding]]
    """For each split but the first: lines whose text on side "src" or "tgt" occurs in the first split too."""

    @property
    def num_unusable(self) -> int:
        """Number of faults that a run would reject: pairs with a blank side, sides that are not UTF-8."""
        return sum(
            split.empty.count + sum(side.unusual.findings[BROKEN].count for side in split.sides.values())
            for split in self.splits.values()
        )

    def to_json(self) -> dict[str, Any]:
        """Return all findings by split."""
        splits = {name: split.to_json() for name, split in self.splits.items()}
        for name, sides in self.overlap.items():
            splits[name]["overlap"] = {side: finding.to_json() for side, finding in sides.items()}
        return splits


def check_corpus(
    splits: Mapping[str, Sequence[Source]], *, progress: ProgressCallback = no_progress
) -> CorpusCheck:
    """Measure each split and find suspicious lines; each file is read once.

    Args:
        splits: the sources of each split, from ``find_sources``. The first split should be train: the
            others are compared with it, and swapped sides are recognised by its first pairs.
        progress: shows how many pairs of each split have been read.

    Returns:
        The measurements and findings; blank sides and bytes that are not UTF-8 are findings, not errors.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line breaks the format, or the two files of a source differ in length.
    """
    sides, found = SwappedSides(), {name: SplitCheck() for name in splits}
    for name, sources in splits.items():
        label = f"reading {name}" if name else "reading"
        progress(label, 0, None)
        for source in sources:
            _read(source, found[name], sides, label, progress)
        found[name].finish()
    sides.finish()
    first, *others = found
    return CorpusCheck(splits=found, overlap={name: _overlap(found[first], found[name]) for name in others})


def _read(
    source: Source, into: SplitCheck, sides: SwappedSides, label: str, progress: ProgressCallback
) -> None:
    """Add all pairs of a source to the measurements ``into``."""
    before = into.pairs
    for _ in range(source.header_lines):
        into.skip_header()
    for block in _blocks(source.rows(keep_broken=True)):
        first = into.next_line
        src, tgt = into.add([pair.src for pair in block], [pair.tgt for pair in block])
        sides.add(src, tgt, first, into.swapped)
        progress(label, into.pairs, None)
    into.files.append({"paths": [display_name(path) for path in source.paths], "pairs": into.pairs - before})


def _blocks(pairs: Iterator[PairRecord]) -> Iterator[list[PairRecord]]:
    """Yield the pairs in lists of ``PAIRS_PER_CALL``."""
    while block := list(islice(pairs, PAIRS_PER_CALL)):
        yield block


def _overlap(train: SplitCheck, other: SplitCheck) -> dict[str, Finding]:
    """Find the lines of ``other`` that occur in ``train`` too, for each side."""
    overlap = {}
    for name, side in other.sides.items():
        overlap[name] = Finding()
        repeated = np.flatnonzero(np.isin(side.hashes(), train.sides[name].hashes()))
        other.add_lines(overlap[name], repeated)
    return overlap
