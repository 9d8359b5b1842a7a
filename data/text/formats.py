"""Formats of parallel text: two files, a file of columns, or JSON Lines, one pair per line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from data.text.characters import SURROGATE
from data.text.compression import display_name
from data.text.lines import iter_lines, line_count_error


class PairRecord(NamedTuple):
    """A sentence pair with its line number; a side may be blank."""

    number: int
    """Number of the line, from 1."""
    src: str
    """Source sentence."""
    tgt: str
    """Target sentence."""


@dataclass(frozen=True, kw_only=True)
class TwoFiles:
    """Two files; line i of ``tgt`` translates line i of ``src``."""

    src: Path
    """Source sentences; see ``iter_lines`` for what a file may be."""
    tgt: Path
    """Target sentences."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return self.src, self.tgt

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs.

        Args:
            keep_broken: see ``iter_lines``.

        Raises:
            ValueError: the files differ in their number of lines; see ``iter_lines`` for others.
        """
        src, tgt = (iter_lines(path, allow_blank=True, keep_broken=keep_broken) for path in self.paths)
        for number, (left, right) in enumerate(zip_longest(src, tgt), start=1):
            if left is None:
                raise line_count_error(self.src, number - 1, self.tgt, number + sum(1 for _ in tgt))
            if right is None:
                raise line_count_error(self.src, number + sum(1 for _ in src), self.tgt, number - 1)
            yield PairRecord(number, left[1], right[1])


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file of columns separated by tabs, without quotes and without a header line."""

    path: Path
    """The file; see ``iter_lines`` for the supported kinds."""
    columns: tuple[int, int]
    """Numbers of the source column and the target column, from 1."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return (self.path,)

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs; a blank line gives a blank pair.

        Args:
            keep_broken: see ``iter_lines``.

        Raises:
            ValueError: a line has too few columns; see ``iter_lines`` for others.
        """
        first, second = (column - 1 for column in self.columns)
        for number, line in iter_lines(self.path, allow_blank=True, keep_broken=keep_broken):
            cells = line.split("\t") if line.strip() else ["", ""] + [""] * max(self.columns)
            if len(cells) < max(self.columns):
                raise ValueError(
                    f"{display_name(self.path)}, line {number}: column {max(self.columns)} is asked for, "
                    f"found {len(cells)}; correct the line, or give other --columns"
                )
            yield PairRecord(number, cells[first], cells[second])


@dataclass(frozen=True, kw_only=True)
class Records:
    """A JSON Lines file, one object per line; a line feed inside a sentence becomes a space."""

    path: Path
    """The file; see ``iter_lines`` for the supported kinds."""
    fields: tuple[str, str]
    """Names of the source field and the target field; dots separate nested keys ("translation.en")."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return (self.path,)

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs; a blank line gives a blank pair.

        Args:
            keep_broken: keep bytes that are not UTF-8 (see ``iter_lines``) and unpaired surrogates.

        Raises:
            ValueError: a line is not JSON, lacks a field, or a field is not a string that can be written to a
                file; see ``iter_lines`` for others.
        """
        for number, line in iter_lines(self.path, allow_blank=True, keep_broken=keep_broken):
            context = f"{display_name(self.path)}, line {number}"
            if not line.strip():
                yield PairRecord(number, "", "")
                continue
            record = _parse_record(line, context)
            src, tgt = (_field_text(record, field, context, keep_broken=keep_broken) for field in self.fields)
            yield PairRecord(number, src, tgt)


Source = TwoFiles | Table | Records
"""Any source of sentence pairs."""


def _parse_record(line: str, context: str) -> Any:
    """Parse the JSON of a line; ``context`` begins the message of an error."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{context}: not JSON ({error}); expected one object per line") from None


def _field_text(record: Any, field: str, context: str, *, keep_broken: bool) -> str:
    """Return the text of a field; ``context`` begins the message of an error."""
    value = record
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            names = f"; known are {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
            raise ValueError(f"{context}: no field {field!r}{names}; name the two texts with --fields")
        value = value[name]
    if not isinstance(value, str):
        raise ValueError(f"{context}: field {field!r} must be a text, found {type(value).__name__}")
    if not keep_broken and (broken := SURROGATE.search(value)):
        raise ValueError(
            f"{context}: field {field!r} holds an unpaired surrogate (U+{ord(broken[0]):04X}), "
            "which is half a character; correct the line"
        )
    return value.replace("\r\n", " ").replace("\n", " ")
