"""Where sentence pairs come from: two files, a table of columns, or JSON objects, one pair a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from data.text.characters import SURROGATE
from data.text.compression import display_name
from data.text.lines import iter_lines, unequal


class PairRecord(NamedTuple):
    """A pair as it stands on a line; a side is blank where the line gives none."""

    number: int
    """Of the line, from 1 on."""
    src: str
    tgt: str


@dataclass(frozen=True, kw_only=True)
class TwoFiles:
    """Two files whose lines translate each other."""

    src: Path
    tgt: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read."""
        return self.src, self.tgt

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs; see ``iter_lines`` for ``keep_broken`` and the errors."""
        src, tgt = (iter_lines(path, allow_blank=True, keep_broken=keep_broken) for path in self.paths)
        for number, (left, right) in enumerate(zip_longest(src, tgt), start=1):
            if left is None:
                raise unequal(self.src, number - 1, self.tgt, number + sum(1 for _ in tgt))
            if right is None:
                raise unequal(self.src, number + sum(1 for _ in src), self.tgt, number - 1)
            yield PairRecord(number, left[1], right[1])


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file of columns parted by tabs, without quotes or a head line."""

    path: Path
    columns: tuple[int, int]
    """The numbers of the source's and the target's column, from 1 on."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read."""
        return (self.path,)

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs; a line with too few columns is an error, a blank one a blank pair."""
        first, second = (column - 1 for column in self.columns)
        for number, line in iter_lines(self.path, allow_blank=True, keep_broken=keep_broken):
            cells = line.split("\t") if line.strip() else ["", ""] + [""] * max(self.columns)
            if len(cells) < max(self.columns):
                raise ValueError(
                    f"{display_name(self.path)}, line {number}: column {max(self.columns)} is asked for, "
                    f"found {len(cells)}; mend the line, or give other --columns"
                )
            yield PairRecord(number, cells[first], cells[second])


@dataclass(frozen=True, kw_only=True)
class Records:
    """A file with one JSON object a line; a line feed inside a text becomes a space."""

    path: Path
    fields: tuple[str, str]
    """The names of the source's and the target's field; a dot leads into an object ("translation.en")."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read."""
        return (self.path,)

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs; what is not JSON or lacks a field is an error, a blank line a blank pair."""
        for number, line in iter_lines(self.path, allow_blank=True, keep_broken=keep_broken):
            place = f"{display_name(self.path)}, line {number}"
            if not line.strip():
                yield PairRecord(number, "", "")
                continue
            record = _parsed(line, place)
            src, tgt = (_text(record, field, place, keep_broken=keep_broken) for field in self.fields)
            yield PairRecord(number, src, tgt)


Source = TwoFiles | Table | Records


def _parsed(line: str, place: str) -> Any:
    """The JSON value of a line."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON ({error}); expected one object a line") from None


def _text(record: Any, field: str, place: str, *, keep_broken: bool) -> str:
    """The text of one field."""
    value = record
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            known = f"; known are {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
            raise ValueError(f"{place}: no field {field!r}{known}; name the two texts with --fields")
        value = value[name]
    if not isinstance(value, str):
        raise ValueError(f"{place}: field {field!r} must be a text, found {type(value).__name__}")
    if not keep_broken and (broken := SURROGATE.search(value)):
        raise ValueError(
            f"{place}: field {field!r} holds an unpaired surrogate (U+{ord(broken[0]):04X}), "
            "which is half a character; mend the line"
        )
    return value.replace("\r\n", " ").replace("\n", " ")
