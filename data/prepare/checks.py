"""Check of a raw corpus in one pass; memory holds 16 bytes per pair and no text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from data.prepare.findings import Finding
from data.prepare.split_check import SplitCheck
from data.prepare.swapped_sides import SwappedSides
from data.prepare.unusual_characters import BROKEN
from data.progress import PAIRS_PER_CALL, ProgressCallback, no_progress
from data.text.compression import display_name
from data.text.formats import PairRecord, Source


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
