"""Formats of parallel text: two files, a file of columns, or JSON Lines, one pair per line."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from data.text import SURROGATE, display_name, iter_lines, line_count_error

BLOCK_PAIRS = 4_000
"""Pairs that are read, examined and written at a time."""

PairBlock = tuple[list[str], list[str]]
"""Consecutive sources and their targets, equally many; a side may be blank."""


class PairRecord(NamedTuple):
    """A sentence pair with its line number; a side may be blank."""

    number: int
    """Number of the line in the file, from 1; a header line counts."""
    src: str
    """Source sentence."""
    tgt: str
    """Target sentence."""


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A source of sentence pairs."""

    @property
    @abstractmethod
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""

    @property
    def header_lines(self) -> int:
        """Number of lines before the first pair."""
        return 0

    @abstractmethod
    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs; a blank line gives a blank pair.

        Args:
            keep_broken: keep bytes that are not UTF-8, see ``iter_lines``, and unpaired surrogates.

        Raises:
            ValueError: a line breaks the format; see ``iter_lines`` for others.
        """

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs with the numbers of their lines; see ``pairs``."""
        pairs = self.pairs(keep_broken=keep_broken)
        return (PairRecord(number, *pair) for number, pair in enumerate(pairs, start=1 + self.header_lines))

    def blocks(self, *, keep_broken: bool = False) -> Iterator[PairBlock]:
        """Stream the pairs in lists of ``BLOCK_PAIRS``; see ``pairs``."""
        pairs = self.pairs(keep_broken=keep_broken)
        while block := list(islice(pairs, BLOCK_PAIRS)):
            src, tgt = map(list, zip(*block, strict=True))
            yield src, tgt


@dataclass(frozen=True, kw_only=True)
class TwoFiles(Source):
    """Two files; line i of ``tgt`` translates line i of ``src``."""

    src: Path
    """Source sentences; see ``iter_lines`` for what a file may be."""
    tgt: Path
    """Target sentences."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return self.src, self.tgt

    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs; the files must have equally many lines."""
        options = {"allow_blank": True, "keep_broken": keep_broken}
        with closing(iter_lines(self.src, **options)) as src, closing(iter_lines(self.tgt, **options)) as tgt:
            for number, (left, right) in enumerate(zip_longest(src, tgt)):
                if left is None or right is None:
                    longer = number + 1 + sum(1 for _ in chain(src, tgt))
                    counts = (number, longer) if left is None else (longer, number)
                    raise line_count_error(self.src, counts[0], self.tgt, counts[1])
                yield left, right


@dataclass(frozen=True, kw_only=True)
class Table(Source):
    """A file of columns separated by tabs, without quotes."""

    path: Path
    """The file; see ``iter_lines`` for the supported kinds."""
    columns: tuple[int, int] | tuple[str, str] | None = None
    """Source column and target column: their numbers, from 1, where there is no header line; or their names
    in the header line; None: the only two of a table without a header line."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return (self.path,)

    @property
    def header_lines(self) -> int:
        """Number of lines before the first pair: 1 where columns are named."""
        return int(self.columns is not None and isinstance(self.columns[0], str))

    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs.

        A line with too few columns is an error, as are names that the header lacks, and, if the columns are
        not given, a line with more than two.
        """
        with closing(iter_lines(self.path, allow_blank=True, keep_broken=keep_broken)) as lines:
            names = next(lines).split("\t") if self.header_lines else []
            src, tgt = (self._index(column, names) for column in self.columns or (1, 2))
            for number, line in enumerate(lines, start=1 + self.header_lines):
                if not line.strip():
                    yield "", ""
                    continue
                cells, context = line.split("\t"), f"{display_name(self.path)}, line {number}"
                if self.columns is None and len(cells) > 2:
                    raise ValueError(
                        f"{context}: {len(cells)} columns, of which two are needed: name them by --columns, "
                        "such as --columns 1,2, or en,de if the first line has these names"
                    )
                if len(cells) <= max(src, tgt):
                    raise ValueError(
                        f"{context}: column {1 + max(src, tgt)} is asked for, found {len(cells)}; "
                        + ("correct the line, or give other --columns" if len(cells) > 1 else NO_TABS)
                    )
                yield cells[src], cells[tgt]

    def _index(self, column: int | str, names: list[str]) -> int:
        """Return the index of a column in the cells of a line."""
        if isinstance(column, int):
            return column - 1
        if column not in names:
            raise ValueError(
                f"{display_name(self.path)}, line 1: no column {column!r} in the header line {names!r:.200}"
            )
        return names.index(column)


NO_TABS = "there is no tab in it, and columns are separated by tabs, not by commas or spaces"


@dataclass(frozen=True, kw_only=True)
class Records(Source):
    """A JSON Lines file, one object per line; a line feed inside a sentence becomes a space."""

    path: Path
    """The file; see ``iter_lines`` for the supported kinds."""
    fields: tuple[str, str]
    """Names of the source field and the target field; dots separate nested keys ("translation.en")."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return (self.path,)

    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs.

        A line must be a JSON object with both fields, which are strings that can be written to a file.
        """
        with closing(iter_lines(self.path, allow_blank=True, keep_broken=keep_broken)) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    yield "", ""
                    continue
                try:
                    record = json.loads(line)
                    src, tgt = (_field_text(record, field, keep_broken=keep_broken) for field in self.fields)
                except json.JSONDecodeError as error:
                    reason = f"not JSON ({error}); expected one object per line"
                    raise ValueError(f"{display_name(self.path)}, line {number}: {reason}") from None
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"{display_name(self.path)}, line {number}: {error}") from None
                yield src, tgt


def _field_text(record: Any, field: str, *, keep_broken: bool) -> str:
    """Return the text of a field."""
    value = record
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            names = f"; known are {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
            raise ValueError(f"no field {field!r}{names}; name the two texts with --fields")
        value = value[name]
    if not isinstance(value, str):
        raise ValueError(f"field {field!r} must be a text, found {type(value).__name__}")
    if not keep_broken and (broken := SURROGATE.search(value)):
        raise ValueError(
            f"field {field!r} holds an unpaired surrogate (U+{ord(broken[0]):04X}), which is half a "
            "character; correct the line"
        )
    return value.replace("\r\n", " ").replace("\n", " ")
