"""Search for unusual characters in blocks of lines, by a lookup table over all code points."""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from data.prepare.findings import Finding

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
