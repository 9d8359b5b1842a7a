"""Formats of parallel text: two files, a file of columns, or JSON Lines, and how arguments name them."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from data.corpus import KINDS, corpus_files
from data.files import as_paths
from data.text import display_name, iter_lines, plain_name, zip_parallel

BLOCK_PAIRS = 4_000
"""Pairs that are read and written at a time."""

PairBlock = tuple[list[str], list[str]]
"""Consecutive sources and their targets, equally many; a side may be blank."""


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A source of sentence pairs."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return tuple(value for value in vars(self).values() if isinstance(value, Path))

    @property
    def header_lines(self) -> int:
        """Number of lines before the first pair."""
        return 0

    @abstractmethod
    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs; a blank line gives a blank pair.

        Args:
            keep_broken: keep bytes that are not UTF-8, see ``iter_lines``.

        Raises:
            ValueError: a line breaks the format; see ``iter_lines`` for others.
        """

    def blocks(self, *, keep_broken: bool = False) -> Iterator[PairBlock]:
        """Stream the pairs in lists of ``BLOCK_PAIRS``."""
        pairs = self.pairs(keep_broken=keep_broken)
        while block := list(islice(pairs, BLOCK_PAIRS)):
            src, tgt = map(list, zip(*block, strict=True))
            yield src, tgt


@dataclass(frozen=True, kw_only=True)
class TwoFiles(Source):
    """Two files; line i of ``tgt`` translates line i of ``src``."""

    src: Path
    tgt: Path

    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs; the files must have equally many lines."""
        read = partial(iter_lines, allow_blank=True, keep_broken=keep_broken)
        return zip_parallel(self.src, read(self.src), self.tgt, read(self.tgt))


Parser = Callable[[str], tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class OneFile(Source):
    """A file with a pair in each line."""

    path: Path
    """The file; see ``iter_lines`` for its format."""

    def pairs(self, *, keep_broken: bool = False) -> Iterator[tuple[str, str]]:
        """Stream the pairs; errors name the line."""
        lines = enumerate(iter_lines(self.path, allow_blank=True, keep_broken=keep_broken), start=1)
        parse = self._parser(next(lines)[1] if self.header_lines else "")
        for number, line in lines:
            try:
                pair = parse(line) if line.strip() else ("", "")
            except ValueError as error:
                raise ValueError(f"{display_name(self.path)}, line {number}: {error}") from None
            yield pair

    @abstractmethod
    def _parser(self, header: str) -> Parser: ...


@dataclass(frozen=True, kw_only=True)
class Table(OneFile):
    """A file of columns separated by tabs; cells with the doubled quotes of spreadsheets lose them."""

    columns: tuple[int, int] | tuple[str, str] | None = None
    """Source column and target column: their numbers, from 1, where there is no header line; or their names
    in the header line; None: the only two of a table without a header line."""

    @property
    def header_lines(self) -> int:
        """Number of lines before the first pair: 1 where columns are named."""
        return int(self.columns is not None and isinstance(self.columns[0], str))

    def _parser(self, header: str) -> Parser:
        names, columns = header.split("\t"), self.columns or (1, 2)
        for missing in [name for name in columns if isinstance(name, str) and name not in names]:
            raise ValueError(
                f"{display_name(self.path)}, line 1: no column {missing!r} in the header line {names!r:.200}"
            )
        src, tgt = (names.index(key) if isinstance(key, str) else key - 1 for key in columns)
        last = max(src, tgt)

        def parse(line: str) -> tuple[str, str]:
            cells = line.split("\t")
            if self.columns is None and len(cells) > 2:
                raise ValueError(
                    f"{len(cells)} columns, but two are needed: choose them with --columns, "
                    "such as --columns 1,2, or en,de if the first line names the columns"
                )
            if len(cells) <= last:
                raise ValueError(
                    f"no column {last + 1}: the line has {len(cells)}, separated by tabs; "
                    "correct it, or choose other --columns"
                )
            return _unquoted(cells[src]), _unquoted(cells[tgt])

        return parse


def _unquoted(cell: str) -> str:
    # Spreadsheets double the quotes inside quotes; other quotes belong to the text.
    is_quoted = re.fullmatch(r'"(?:[^"]|"")*""(?:[^"]|"")*"', cell)
    return cell[1:-1].replace('""', '"') if is_quoted else cell


@dataclass(frozen=True, kw_only=True)
class Records(OneFile):
    """A JSON Lines file, one object per line; a line feed inside a sentence becomes a space."""

    fields: tuple[str, str]
    """Names of the source field and the target field; dots separate nested keys ("translation.en")."""

    def _parser(self, header: str) -> Parser:
        src, tgt = self.fields

        def parse(line: str) -> tuple[str, str]:
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                remedy = (
                    "convert the array with jq -c '.[]'" if line[:1] == "[" else "write one object per line"
                )
                raise ValueError(f"not a JSON object ({error}); {remedy}") from None
            return _field_text(record, src), _field_text(record, tgt)

        return parse


def _field_text(record: Any, field: str) -> str:
    value = record
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            names = f" (it has {', '.join(map(repr, value))})" if isinstance(value, dict) and value else ""
            raise ValueError(f"no field {field!r}{names}; choose the two texts with --fields")
        value = value[name]
    if not isinstance(value, str):
        raise ValueError(f"field {field!r} must be a text, found {type(value).__name__}")
    if re.search(r"[\ud800-\udc7f\udd00-\udfff]", value):  # other surrogates stand for invalid UTF-8
        raise ValueError(f"field {field!r} has a lone surrogate (\\ud800 to \\udfff); repair the text")
    return value.replace("\r\n", " ").replace("\n", " ")


# From command line arguments to sources and languages.


TABLES = (".tsv", ".tab")
RECORDS = (".jsonl", ".ndjson")
UNNAMED = ("src", "tgt")
"""Names of the languages if the file names do not tell them."""
LANGUAGES = "expected two different names of letters and digits, such as en,de"
COLUMNS = (
    "expected two different numbers from 1 on, such as 1,2, or two names from the first line, such as en,de"
)
FIELDS = "expected the names of two fields, such as en,de or translation.en,translation.de"


def find_sources(
    files: str | Path | Sequence[str | Path] = (),
    *,
    src: str | Path | Sequence[str | Path] = (),
    tgt: str | Path | Sequence[str | Path] = (),
    columns: str = "",
    fields: str = "",
) -> tuple[Source, ...]:
    """Describe the files of a raw corpus: their format follows from names and arguments.

    Args:
        files: tables, JSON lines, or pairs of files: source, target, source, target, ...
        src: source files, instead of ``files``.
        tgt: their target files, in the same order.
        columns: the two columns of tables, by number from 1 ("1,2"), or by their names in the first line
            ("en,de"); empty: the only two columns of .tsv and .tab files.
        fields: the two fields of JSON lines, such as "en,de" or "translation.en,translation.de".

    Raises:
        ValueError: the arguments fit no format, or contradict each other.
    """
    files, src, tgt = (as_paths(paths) if paths else [] for paths in (files, src, tgt))
    if bool(src) != bool(tgt) or len(src) != len(tgt) or (src and files):
        raise ValueError(
            f"--src names {len(src)} files, --tgt {len(tgt)}, and {len(files)} have no option: "
            "use --src and --tgt for all files, one target per source, or for none"
        )
    if columns and fields:
        raise ValueError("--columns is for tables and --fields for JSON lines: use one of them")
    paths = files or list(chain(*zip(src, tgt, strict=True)))
    suffixes = {Path(plain_name(path)).suffix for path in paths}
    if paths and (fields or suffixes <= {*RECORDS}):
        names = _two_names("--fields", fields, FIELDS, all)
        return tuple(Records(path=path, fields=names) for path in paths)
    if paths and (columns or suffixes <= {*TABLES}):
        return tuple(Table(path=path, columns=_parse_columns(columns)) for path in paths)
    return _file_pairs(paths)


def folder_sources(
    root: str | Path, langs: tuple[str, str] | None = None
) -> tuple[dict[str, Source], tuple[str, str]]:
    """Find the sources of a corpus folder's splits, and its two languages.

    Without ``langs`` these are the two suffixes of the training files, in alphabetical order.
    """
    root = Path(root)
    langs = langs or _folder_languages(root)
    files = corpus_files(root, *langs)
    return {split: TwoFiles(src=src, tgt=tgt) for split, (src, tgt) in files.items()}, langs


def languages(sources: Sequence[Source]) -> tuple[str, str]:
    """Return the languages of the first source by file or field names, ``UNNAMED`` if these do not tell."""
    match sources[0]:
        case TwoFiles(src=src, tgt=tgt):
            first, second = (Path(plain_name(path)).suffix.removeprefix(".") for path in (src, tgt))
        case Records(fields=fields):
            first, second = (field.rpartition(".")[2] for field in fields)
        case Table(columns=(str(first), str(second))):
            pass
        case _:
            return UNNAMED
    return (first, second) if first != second and is_language(first) and is_language(second) else UNNAMED


def parse_languages(text: str) -> tuple[str, str]:
    """Split "en,de" into two different names; ValueError for others."""
    return _two_names("--langs", text, LANGUAGES, lambda names: all(map(is_language, names)))


def is_language(name: str) -> bool:
    """Return whether ``name`` can be the suffix of a corpus file."""
    return bool(name) and name != "gz" and all(c.isalnum() or c in "-_" for c in name)


def _two_names(option: str, text: str, expected: str, valid: Callable[[list[str]], bool]) -> tuple[str, str]:
    names = text.split(",")
    if len(names) != 2 or names[0] == names[1] or not valid(names):
        raise ValueError(f"{option} {text or '(none)'}: {expected}")
    return names[0], names[1]


def _parse_columns(text: str) -> tuple[int, int] | tuple[str, str] | None:
    if not text:
        return None

    def valid(names: list[str]) -> bool:
        return all(name.isdecimal() and int(name) for name in names) or not any(
            name.isdecimal() or not name for name in names
        )

    first, second = _two_names("--columns", text, COLUMNS, valid)
    return (int(first), int(second)) if first.isdecimal() else (first, second)


def _file_pairs(files: Sequence[Path]) -> tuple[Source, ...]:
    if not files or len(files) % 2:
        raise ValueError(
            f"{len(files)} file{'s' * (len(files) != 1)}: expected source and target in turn; "
            "for tables add --columns 1,2, for JSON lines --fields en,de"
        )
    sources = [TwoFiles(src=src, tgt=tgt) for src, tgt in zip(files[::2], files[1::2], strict=True)]
    first = languages(sources)
    for source in sources:
        if source.src == source.tgt:
            raise ValueError(
                f"{display_name(source.src)} is both source and target; name two different files"
            )
        if first != UNNAMED and languages([source]) == first[::-1]:
            raise ValueError(
                f"{source.src} and {sources[0].src} are both sources, but in different languages: "
                f"put {source.tgt} first"
            )
    return tuple(sources)


def _folder_languages(root: Path) -> tuple[str, str]:
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    names = [Path(plain_name(path)) for path in sorted(root.iterdir())]
    langs = sorted({name.suffix[1:] for name in names if KINDS["train"].fullmatch(name.stem)})
    if len(langs) != 2:
        raise ValueError(
            f"{root}: expected train files in two languages, found {', '.join(langs) or 'none'}; "
            "choose two with --langs SRC,TGT"
        )
    return langs[0], langs[1]
