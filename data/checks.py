"""Check of a raw corpus in one pass; memory holds 32 bytes per pair and no text."""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from math import log
from typing import Any, NamedTuple
from unicodedata import is_normalized

import numpy as np
from numpy.typing import NDArray

from data.files import ProgressCallback, no_progress
from data.formats import Source
from data.split import Hashes, Mask, hash_array, hash_text, is_repeat, normalise, pair_hashes
from data.text import NO_SPACES, count_words, display_name

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
    """Numbers of the first such lines, from 1; numbering continues from one file of a side to the next."""
    characters: Counter[str] = field(default_factory=Counter)
    """How often each character that caused the finding occurs, by code point ("U+00A0")."""

    def add(self, lines: IntArray) -> None:
        """Add lines, given by their numbers in ascending order."""
        self.count += len(lines)
        self.lines += lines[: MAX_EXAMPLES - len(self.lines)].tolist()

    def to_json(self) -> dict[str, Any]:
        """Return count and lines, and the most frequent characters if there are any."""
        common = dict(sorted(self.characters.items(), key=lambda item: (-item[1], item[0]))[:MAX_EXAMPLES])
        return {"count": self.count, "lines": self.lines} | ({"characters": common} if common else {})


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


def code_points(lines: Sequence[str]) -> tuple[Codes, IntArray]:
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


def unusual_characters(lines: Sequence[str]) -> Iterator[tuple[str, IntArray, Codes]]:
    """Yield each kind found in a block: for each such character the index of its line, and its code point."""
    codes, rows = code_points(lines)
    kinds = _groups_by_code(tuple(KINDS.values()))[codes]
    found = {kind: kinds == number for number, kind in enumerate(KINDS, start=1)}
    scripts = _groups_by_code(_SCRIPTS)[codes]
    left, right = scripts[:-1], scripts[1:]
    found[MIXED] = np.append(False, (left > 0) & (right > 0) & (left != right))
    lead = _groups_by_code((_LEAD,))[codes[:-1]] > 0
    trail = _groups_by_code((_TRAIL,))[codes[1:]] > 0
    quote = (codes[:-1] == ord("â")) & (codes[1:] == ord("€"))
    found[MOJIBAKE] = np.append((lead & trail) | quote, False)
    for kind, mask in found.items():
        if mask.any():
            yield kind, rows[mask], codes[mask]


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


# Marks of a text that is not plain: cut into pieces, marked up, without spaces, of another Unicode form.


BPE, PIECES, UNSPACED, NOT_NFC = "BPE (@@)", "SentencePiece (▁)", "text without spaces", "not Unicode NFC"
CUT = (BPE, PIECES)
MARKS: Mapping[str, tuple[str, str]] = {
    BPE: (r"@@(?<=\S@@)(?= |$)", "delete each '@@ '"),
    PIECES: ("▁", "delete the spaces, then write a space for each ▁"),
    "entities (&amp;)": (
        r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,6}|#x[\da-fA-F]{1,6});",
        "html.unescape undoes it",
    ),
    "<unk>, <s> or <pad>": ("</?(?:unk|pad|s|bos|eos)>", "these stand for no text; subwords know every word"),
    "tokenised (' .')": (r" [.,](?<=\w [.,])(?= |$)", "detokenise it, such as by sacremoses"),
    NOT_NFC: ("", "unicodedata.normalize('NFC', text) undoes it"),
    UNSPACED: (f"[{NO_SPACES}]", "BLEU takes a sentence for a word: set a tokenizer, such as char or zh"),
}
"""By kind of mark, the regular expression that finds it in a line, and how to undo it."""
SAMPLE_LINES = 10_000
"""Number of lines by which a text is described."""
MIN_SHARE = 0.01
"""Share of the lines from which a mark is worth a warning; half of them for text without spaces."""


@dataclass(frozen=True)
class MarkedLines:
    """Number of lines of a text that have a mark."""

    kind: str
    count: int
    total: int

    @property
    def most(self) -> bool:
        """Whether most lines have the mark."""
        return 2 * self.count > self.total

    def __str__(self) -> str:
        return f"{self.kind} in {self.count:,} of {self.total:,} lines: {MARKS[self.kind][1]}"


def find_marks(lines: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each kind of mark that a block of lines has, with the indices of its lines."""
    text = "\n".join(lines)
    for kind, (pattern, _) in MARKS.items():
        found: Callable[[str], object] = re.compile(pattern, re.MULTILINE).search
        if kind == NOT_NFC:
            found = lambda text: not is_normalized("NFC", text)  # noqa: E731
        if found(text):
            yield kind, [row for row, line in enumerate(lines) if found(line)]


def notable_marks(counts: Mapping[str, int], total: int) -> list[MarkedLines]:
    """List the marks that are worth a warning, given on how many of all lines each stands."""
    marked = [MarkedLines(kind, count, total) for kind, count in counts.items()]
    return [
        each for each in marked if each.most or (each.kind != UNSPACED and each.count >= MIN_SHARE * total)
    ]


def describe_text(*texts: Iterable[str], tokenize: str) -> list[MarkedLines]:
    """List the marks of texts, by the first ``SAMPLE_LINES`` lines of each; ``tokenize`` is BLEU's."""
    lines = [line for text in texts for line in islice(text, SAMPLE_LINES)]
    counts = {kind: len(rows) for kind, rows in find_marks(lines)}
    if tokenize not in ("13a", "intl", "none"):  # the others need no spaces
        counts.pop(UNSPACED, None)
    return notable_marks(counts, len(lines))


# Detection of pairs whose source and target are swapped, by character bigrams.
#
# Bigrams of neighbouring characters, case and spaces normalised, are counted on each side of the first pairs
# of the corpus. The score of a line is the sum over its bigrams of log p(other side) - log p(own side). A
# pair is suspected if source and target together score above ``MIN_SCORE`` in total and above
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

Floats = NDArray[np.floating[Any]]


class _Block(NamedTuple):
    """Bigrams of both sides, the numbers of their lines, and the finding for suspected pairs."""

    src: "Bigrams"
    tgt: "Bigrams"
    lines: IntArray
    finding: Finding


class SwappedSides:
    """Detector of swapped pairs; blocks are held back until ``SAMPLE_PAIRS`` pairs have been counted."""

    def __init__(self) -> None:
        self._waiting: list[_Block] = []
        self._counts: tuple[Floats, ...] = ()

    def add(self, src: Sequence[str], tgt: Sequence[str], lines: IntArray, finding: Finding) -> None:
        """Search normalised lines, at once or when enough pairs have been counted."""
        self._waiting.append(_Block(_bigrams(src), _bigrams(tgt), lines, finding))
        if self._counts or sum(len(each.lines) for each in self._waiting) >= SAMPLE_PAIRS:
            self.finish()

    def finish(self) -> None:
        """Search the waiting blocks, after counting the bigrams of the first ones; call it at the end too."""
        if self._waiting and not self._counts:
            src = np.concatenate([each.src.bins for each in self._waiting])
            tgt = np.concatenate([each.tgt.bins for each in self._waiting])
            self._counts = tuple(np.bincount(bins, minlength=BINS) + PRIOR for bins in (src, tgt))
        for block in self._waiting:
            own, other = self._counts
            score, size = np.zeros(len(block.lines)), np.zeros(len(block.lines))
            for bigrams, sign in ((block.src, 1), (block.tgt, -1)):
                bins = bigrams.bins
                ratios = np.log(other[bins] / other.sum()) - np.log(own[bins] / own.sum())
                ratios[(own[bins] == PRIOR) & (other[bins] == PRIOR)] = 0  # unseen: their sums would decide
                ratios = sign * ratios.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
                score += np.bincount(bigrams.rows, weights=ratios, minlength=len(score))
                size += np.bincount(bigrams.rows, minlength=len(score))
            suspected = (score > MIN_SCORE) & (score > MIN_SCORE_PER_BIGRAM * size)
            block.finding.add(block.lines[suspected])
        self._waiting.clear()


class Bigrams(NamedTuple):
    """The character bigrams of a block of lines: counter and index of the line for each, both (N,)."""

    bins: NDArray[np.uint16]
    rows: NDArray[np.int32]


def _bigrams(lines: Sequence[str]) -> Bigrams:
    """Extract the bigrams of all lines, in order; none spans two lines."""
    codes, rows = code_points(lines)
    wide = codes.astype(np.uint64) * HASH_MULTIPLIER
    bins = (wide[:-1] * HASH_MULTIPLIER + wide[1:]) >> np.uint64(64 - BITS)
    inside = (codes[:-1] != 10) & (codes[1:] != 10)  # 10 is the line feed after each line
    # Narrow types: those of SAMPLE_PAIRS pairs, which may be paragraphs, are in memory together.
    return Bigrams(bins[inside].astype(np.uint16), rows[:-1][inside].astype(np.int32))


# Measurements of one split of a raw corpus: arrays with an entry per pair, from which findings are made.


SMOOTHING = 10
"""Characters added to both lengths of a pair, so that short sentences are not outliers."""
OUTLIER_FACTOR = 3.0
"""A pair is an outlier if its length ratio differs from the split's median by more than this factor."""


class SideCheck:
    """Measurements of one side: lengths, unusual characters, repeated lines."""

    def __init__(self) -> None:
        self.repeated = Finding()
        """Lines whose text occurs earlier on this side."""
        self.unusual: dict[str, Finding] = {kind: Finding() for kind in (*KINDS, MIXED, MOJIBAKE, *MARKS)}
        self.lengths = {"words": array("i"), "characters": array("i")}
        """Number of words and of characters of each line."""
        self._hashes = bytearray()

    def add(self, lines: Sequence[str], numbers: IntArray) -> list[str]:
        """Measure a block of lines, given with their numbers; returns the normalised lines."""
        self.lengths["words"].extend(map(count_words, lines))
        self.lengths["characters"].extend(map(len, lines))
        for kind, rows, codes in unusual_characters(lines):
            self.unusual[kind].add(numbers[np.unique(rows)])
            for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
                self.unusual[kind].characters[f"U+{code:04X}"] += int(count)
        for kind, marked in find_marks(lines):
            self.unusual[kind].add(numbers[marked])
        texts = list(map(normalise, lines))
        for number, text in zip(numbers.tolist(), texts, strict=True):
            self._hashes += hash_text(text or f"\n{id(self)} {number}")  # blank lines are no repeats
        return texts

    def hashes(self) -> Hashes:
        """Return the hashes of all normalised lines, (N,); each blank line has a different one."""
        return hash_array(self._hashes)

    def quantiles(self) -> dict[str, dict[str, int]]:
        """Return, by unit, the smallest lengths that the fractions ``QUANTILES`` of the lines do not pass."""
        quantiles = {}
        for unit, lengths in self.lengths.items():
            found = np.quantile(np.array(lengths), [*QUANTILES.values()], method="inverted_cdf")
            quantiles[unit] = dict(zip(QUANTILES, found.tolist(), strict=True))
        return quantiles

    def to_json(self) -> dict[str, Any]:
        """Return the measurements."""
        unusual = {kind: finding.to_json() for kind, finding in self.unusual.items() if finding.count}
        return {**self.quantiles(), "repeated": self.repeated.to_json(), "unusual": unusual}


class SplitCheck:
    """Measurements of one split: both sides, and findings about its pairs."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        """For each source: its paths, and its number of pairs."""
        self.sides = {"src": SideCheck(), "tgt": SideCheck()}
        self.findings = {
            name: Finding() for name in ("ratio_outliers", "empty", "copies", "duplicates", "swapped")
        }
        self.overlap: dict[str, Finding] = {}
        """For each side, but of train: lines whose text occurs on that side of train too."""
        self.pairs = 0
        self.median_ratio = 1.0
        """Median of the length ratios target / source, in characters."""
        self._headers: list[int] = []
        """How many pairs come before each header line."""
        self._blank = bytearray()

    def read(self, source: Source, swapped: SwappedSides, report: Callable[[int], None]) -> None:
        """Measure all pairs of a source; ``report`` is called with the number of pairs read so far."""
        before = self.pairs
        self._headers += [self.pairs] * source.header_lines
        for block in source.blocks(keep_broken=True):
            lines = self.line_numbers(np.arange(self.pairs, self.pairs + len(block[0])))
            self.pairs += len(lines)
            texts = [side.add(each, lines) for side, each in zip(self.sides.values(), block, strict=True)]
            blank = np.array([not (left and right) for left, right in zip(*texts, strict=True)], dtype=bool)
            same = np.array([left == right for left, right in zip(*block, strict=True)], dtype=bool)
            self._blank += blank.tobytes()
            self.findings["empty"].add(lines[blank])
            self.findings["copies"].add(lines[same & ~blank])
            swapped.add(texts[0], texts[1], lines, self.findings["swapped"])
            report(self.pairs)
        paths = [display_name(path) for path in source.paths]
        self.files.append({"paths": paths, "pairs": self.pairs - before})

    def finish(self, train: "SplitCheck | None") -> None:
        """Find repeated lines and pairs, overlap and unusual lengths; call it after the last source."""
        for name, side in self.sides.items():
            side.repeated.add(self._lines_at(is_repeat(side.hashes())))
            if train is not None:
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
        """Number of faults that a run would reject: pairs with a blank side, sides that are not UTF-8."""
        return sum(
            split.findings["empty"].count + sum(side.unusual[BROKEN].count for side in split.sides.values())
            for split in self.splits.values()
        )

    def to_json(self) -> dict[str, Any]:
        """Return all findings by split."""
        return {name: split.to_json() for name, split in self.splits.items()}


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
    swapped, found = SwappedSides(), dict[str, SplitCheck]()
    for name, sources in splits.items():
        label, split = f"reading {name}" if name else "reading", SplitCheck()
        progress(label, 0, None)
        for source in sources:
            split.read(source, swapped, lambda done, label=label: progress(label, done, None))  # type: ignore[misc]
        split.finish(next(iter(found.values()), None))
        found[name] = split
    swapped.finish()
    return CorpusCheck(splits=found)
