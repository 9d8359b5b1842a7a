"""Characters out of the usual, found in blocks of lines by a table over all code points."""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from data.prepare.findings import Finding

KINDS: Mapping[str, str] = {
    "not text": "\ud800-\udfff",  # also what bytes that are not UTF-8 are read as
    "control": "\x00-\x08 \x0e-\x1b \x1f \x7f-\x84 \x86-\x9f",
    "line break": "\x0b-\x0d \x1c-\x1e \x85 \u2028-\u2029",
    "replacement": "\ufffd",
    "private use": "\ue000-\uf8ff \U000f0000-\U000ffffd \U00100000-\U0010fffd",
    "no character": "\ufdd0-\ufdef \ufffe-\uffff",
    "direction mark": "\u061c \u200e-\u200f \u202a-\u202e \u2066-\u2069",
    "invisible": "\xad \u200b \u2060 \ufeff",
    "space": "\xa0 \u1680 \u2000-\u200a \u202f \u205f",
}
"""Characters by what is odd about them, as ranges."""
MIXED, MOJIBAKE = "mixed script", "mojibake"
"""Odd by their neighbour: Latin beside Cyrillic or Greek letters; UTF-8 that was read as 8-bit text."""

_SCRIPTS = ("A-Z a-z \xc0-\xd6 \xd8-\xf6 \xf8-\u024f", "\u0370-\u03ff", "\u0400-\u052f")
_LEAD = "\xc2-\xc3"
_TRAIL = (
    "\x80-\xbf \u0152-\u0153 \u0160-\u0161 \u0178 \u017d-\u017e \u0192 \u02c6 \u02dc "
    "\u2013-\u203a \u20ac \u2122"
)
"""What the second byte of a UTF-8 letter becomes in Latin-1 and in Windows-1252."""

Codes = NDArray[np.uint32]
Rows = NDArray[np.int64]


def codes_of(lines: Sequence[str]) -> tuple[Codes, Rows]:
    """The code points of all lines, each line closed by a line feed, and the row that each belongs to."""
    text = "".join(f"{line}\n" for line in lines)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    lengths = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)) + 1
    return codes, np.repeat(np.arange(len(lines)), lengths)


class UnusualCharacters:
    """Findings of one side of a corpus, by kind."""

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {name: Finding() for name in (*KINDS, MIXED, MOJIBAKE)}

    def add(self, lines: Sequence[str], first: int) -> None:
        """Look through a block of lines whose first has the number ``first``."""
        codes, rows = codes_of(lines)
        kinds = _kinds()[codes]
        for number in np.unique(kinds[kinds > 0]):
            self._count(list(KINDS)[number - 1], np.flatnonzero(kinds == number), codes, rows, first)
        scripts = _table(_SCRIPTS)[codes]
        left, right = scripts[:-1], scripts[1:]
        self._count(MIXED, np.flatnonzero((left > 0) & (right > 0) & (left != right)) + 1, codes, rows, first)
        lead, trail = _table((_LEAD,))[codes[:-1]] > 0, _table((_TRAIL,))[codes[1:]] > 0
        quote = (codes[:-1] == ord("â")) & (codes[1:] == ord("€"))
        self._count(MOJIBAKE, np.flatnonzero((lead & trail) | quote), codes, rows, first)

    def _count(self, kind: str, places: Rows, codes: Codes, rows: Rows, first: int) -> None:
        """Enter the characters at ``places`` and their lines."""
        if not len(places):
            return
        finding = self.findings[kind]
        finding.add_rows(np.unique(rows[places]), first)
        for code, count in zip(*np.unique(codes[places], return_counts=True), strict=True):
            name = f"U+{code:04X}"
            finding.characters[name] = finding.characters.get(name, 0) + int(count)


def _kinds() -> NDArray[np.uint8]:
    """For each code point the number of its kind, 0 for what is usual."""
    return _table(tuple(KINDS.values()))


@cache
def _table(groups: tuple[str, ...]) -> NDArray[np.uint8]:
    """For each code point the number of its group, from 1 on; groups are ranges parted by spaces."""
    table = np.zeros(0x110000, dtype=np.uint8)
    for number, ranges in enumerate(groups, start=1):
        for bounds in ranges.split(" "):
            table[ord(bounds[0]) : ord(bounds[-1]) + 1] = number
    return table
