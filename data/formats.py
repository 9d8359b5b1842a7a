"""Formats of parallel text: two files, a file of columns, or JSON Lines, one pair per line."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from data.text import SURROGATE, display_name, iter_blocks, line_count_error

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


class _Rows:
    """Reading of a source pair by pair, for classes that read it in blocks."""

    @property
    def header_lines(self) -> int:
        """Number of lines before the first pair."""
        return 0

    def rows(self, *, keep_broken: bool = False) -> Iterator[PairRecord]:
        """Stream the pairs; see ``blocks`` for argument and errors."""
        blocks = self.blocks(keep_broken=keep_broken)
        pairs = chain.from_iterable(zip(src, tgt, strict=True) for src, tgt in blocks)
        for number, (left, right) in enumerate(pairs, start=1 + self.header_lines):
            yield PairRecord(number, left, right)

    @abstractmethod
    def blocks(self, *, keep_broken: bool = False) -> Iterator[PairBlock]:
        """Stream the pairs in lists of about ``data.text.BLOCK_BYTES``."""


@dataclass(frozen=True, kw_only=True)
class TwoFiles(_Rows):
    """Two files; line i of ``tgt`` translates line i of ``src``."""

    src: Path
    """Source sentences; see ``iter_lines`` for what a file may be."""
    tgt: Path
    """Target sentences."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return self.src, self.tgt

    def blocks(self, *, keep_broken: bool = False) -> Iterator[PairBlock]:
        """Stream the pairs in lists; those before a bad line are given before its error is raised.

        Args:
            keep_broken: see ``iter_lines``.

        Raises:
            ValueError: the files differ in their number of lines; see ``iter_lines`` for others.
        """
        src, tgt = (
            _Lines(iter_blocks(path, allow_blank=True, keep_broken=keep_broken)) for path in self.paths
        )
        number = 0
        while True:
            src.fill()
            tgt.fill()
            if count := min(len(src.lines), len(tgt.lines)):
                number += count
                yield src.take(count), tgt.take(count)
                continue
            for side in (src, tgt):  # in the order in which the next pair is read
                if not side.lines and side.error is not None:
                    raise side.error
            if not (src.lines or tgt.lines):
                return
            raise line_count_error(self.src, number + src.count_rest(), self.tgt, number + tgt.count_rest())


class _Lines:
    """The next lines of a stream of blocks, and the error at which it has ended."""

    def __init__(self, blocks: Iterator[list[str]]) -> None:
        self.lines: list[str] = []
        self.error: ValueError | None = None
        self._blocks = blocks

    def fill(self) -> None:
        """Read a block if there is no line; afterwards there is none only at the end or an error."""
        try:
            while not self.lines and self.error is None:
                self.lines = next(self._blocks)
        except StopIteration:
            return
        except ValueError as error:
            self.error = error

    def take(self, count: int) -> list[str]:
        """Remove and return the first ``count`` lines."""
        taken, self.lines = self.lines[:count], self.lines[count:]
        return taken

    def count_rest(self) -> int:
        """Read to the end and return the number of lines; raises the error if there is one."""
        return len(self.lines) + sum(map(len, self._blocks))


@dataclass(frozen=True, kw_only=True)
class Table(_Rows):
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

    def blocks(self, *, keep_broken: bool = False) -> Iterator[PairBlock]:
        """Stream the pairs in lists; a blank line gives a blank pair, a header line none.

        Args:
            keep_broken: see ``iter_lines``.

        Raises:
            ValueError: a line has too few columns, the header has no such names, or the columns are not given
                and a line has more than two; see ``iter_lines`` for others.
        """
        numbers: list[int] = []

        def parse(line: str, context: str) -> tuple[str, str] | None:
            cells = line.split("\t")
            if not numbers:
                numbers.extend(self._numbers(cells, context))
                if self.header_lines:
                    return None
            if self.columns is None and len(cells) > 2:
                raise ValueError(
                    f"{context}: {len(cells)} columns, of which two are needed: name them by --columns, such "
                    "as --columns 1,2, or en,de if the first line has these names"
                )
            if len(cells) < max(numbers):
                raise ValueError(
                    f"{context}: column {max(numbers)} is asked for, found {len(cells)}; "
                    + ("correct the line, or give other --columns" if len(cells) > 1 else NO_TABS)
                )
            src, tgt = (cells[number - 1] for number in numbers)
            return src, tgt

        return _parsed_blocks(self.path, parse, keep_broken=keep_broken)

    def _numbers(self, cells: list[str], context: str) -> Iterator[int]:
        """Yield the numbers of the two columns, by the cells of the first line."""
        for column in self.columns or (1, 2):
            if isinstance(column, int):
                yield column
            elif column in cells:
                yield cells.index(column) + 1
            else:
                raise ValueError(f"{context}: no column {column!r} in the header line {cells!r:.200}")


NO_TABS = "there is no tab in it, and columns are separated by tabs, not by commas or spaces"


@dataclass(frozen=True, kw_only=True)
class Records(_Rows):
    """A JSON Lines file, one object per line; a line feed inside a sentence becomes a space."""

    path: Path
    """The file; see ``iter_lines`` for the supported kinds."""
    fields: tuple[str, str]
    """Names of the source field and the target field; dots separate nested keys ("translation.en")."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return (self.path,)

    def blocks(self, *, keep_broken: bool = False) -> Iterator[PairBlock]:
        """Stream the pairs in lists; a blank line gives a blank pair.

        Args:
            keep_broken: keep bytes that are not UTF-8 (see ``iter_lines``) and unpaired surrogates.

        Raises:
            ValueError: a line is not JSON, lacks a field, or a field is not a string that can be written to a
                file; see ``iter_lines`` for others.
        """

        def parse(line: str, context: str) -> tuple[str, str]:
            record = _parse_record(line, context)
            src, tgt = (_field_text(record, field, context, keep_broken=keep_broken) for field in self.fields)
            return src, tgt

        return _parsed_blocks(self.path, parse, keep_broken=keep_broken)


Source = TwoFiles | Table | Records
"""Any source of sentence pairs."""


def _parsed_blocks(
    path: Path, parse: Callable[[str, str], tuple[str, str] | None], *, keep_broken: bool
) -> Iterator[PairBlock]:
    """Stream the pairs of a file of one pair per line.

    Args:
        path: the file.
        parse: returns the two sides of a line that is not blank, or None for a header; its second argument
            begins the message of an error.
        keep_broken: see ``iter_lines``.
    """
    name, number = display_name(path), 0
    for lines in iter_blocks(path, allow_blank=True, keep_broken=keep_broken):
        block: PairBlock = [], []
        try:
            for line in lines:
                number += 1
                pair = parse(line, f"{name}, line {number}") if line.strip() else ("", "")
                if pair is None:
                    continue
                for side, text in zip(block, pair, strict=True):
                    side.append(text)
        except ValueError:
            yield block
            raise
        yield block


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
