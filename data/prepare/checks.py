"""Measure a raw corpus and name the lines that look wrong, in one pass; holds 16 bytes a pair and no text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from data.prepare.findings import Finding
from data.prepare.split_check import SplitCheck
from data.prepare.swapped_sides import SwappedSides
from data.progress import PAIRS_PER_CALL, ProgressCallback, no_progress
from data.text.compression import display_name
from data.text.formats import PairRecord, Source


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    """What was found of each split, and what each shares with the first one."""

    splits: Mapping[str, SplitCheck]
    overlap: Mapping[str, Mapping[str, Finding]]
    """For each split but the first: the lines whose "src", whose "tgt" stands in the first one too."""

    @property
    def unusable(self) -> int:
        """Findings that a run would refuse: pairs with a blank side, sides that are not UTF-8."""
        return sum(
            split.empty.count + sum(side.unusual.findings["not text"].count for side in split.sides.values())
            for split in self.splits.values()
        )

    def to_json(self) -> dict[str, Any]:
        """All findings by split, as JSON can hold them."""
        found = {name: split.to_json() for name, split in self.splits.items()}
        for name, sides in self.overlap.items():
            found[name]["overlap"] = {side: finding.to_json() for side, finding in sides.items()}
        return found


def check_corpus(
    splits: Mapping[str, Sequence[Source]], *, progress: ProgressCallback = no_progress
) -> CorpusCheck:
    """Read each split once; the first one, which should be train, says what either side looks like.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line breaks the format, or the files of a pair differ in length; blank sides and bytes
            that are not UTF-8 are findings.
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
    """Measure all pairs of a source."""
    before = into.pairs
    for block in _blocks(source.rows(keep_broken=True)):
        first = into.pairs + 1
        texts = into.add([row.src for row in block], [row.tgt for row in block])
        sides.add(*texts, first, into.swapped)
        progress(label, into.pairs, None)
    into.files.append({"paths": [display_name(path) for path in source.paths], "pairs": into.pairs - before})


def _blocks(rows: Iterator[PairRecord]) -> Iterator[list[PairRecord]]:
    """The rows in lists of ``PAIRS_PER_CALL``."""
    while block := list(islice(rows, PAIRS_PER_CALL)):
        yield block


def _overlap(train: SplitCheck, other: SplitCheck) -> dict[str, Finding]:
    """The lines of ``other`` that stand in ``train`` too, side by side."""
    found = {}
    for name, side in other.sides.items():
        found[name] = Finding()
        found[name].add_rows(np.flatnonzero(np.isin(side.keys(), train.sides[name].keys())), 1)
    return found
