"""From command line arguments to sources: formats (pairs of files, tables, JSON lines) and languages."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from data.corpus import KINDS, corpus_files
from data.files import as_paths
from data.formats import Records, Source, Table, TwoFiles
from data.text import STDIN, display_name, plain_name

TABLES = (".tsv", ".tab")
RECORDS = (".jsonl", ".ndjson")
UNNAMED = ("src", "tgt")
"""Names of the languages if the file names do not tell them."""


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

    Returns:
        One source per table, file of JSON lines, or pair of files, for ``check_corpus`` and
        ``PreparationPlan``.

    Raises:
        ValueError: the arguments fit no format, or contradict each other.
    """
    files, src, tgt = as_paths(files), as_paths(src), as_paths(tgt)
    if bool(src) != bool(tgt) or len(src) != len(tgt) or (src and files):
        raise ValueError(
            f"--src names {len(src)} files, --tgt {len(tgt)}, and {len(files)} are without either option: "
            "give each source file its target file, with --src and --tgt for all files or for none"
        )
    if columns and fields:
        raise ValueError("--columns is for tables and --fields for JSON lines: give one of them")
    paths = files or list(chain(*zip(src, tgt, strict=True)))
    if paths.count(STDIN) > 1:
        raise ValueError("standard input (-) is named twice, but can be read only once")
    suffixes = {Path(plain_name(path)).suffix for path in paths}
    if fields or (suffixes and suffixes <= {*RECORDS}):
        return tuple(Records(path=path, fields=_parse_fields(fields)) for path in paths)
    if columns or (suffixes and suffixes <= {*TABLES}):
        return tuple(Table(path=path, columns=_parse_columns(columns)) for path in paths)
    return _file_pairs(paths)


def folder_sources(
    root: str | Path, langs: tuple[str, str] | None = None
) -> tuple[dict[str, Source], tuple[str, str]]:
    """Find the splits of a corpus folder.

    Args:
        root: the folder.
        langs: source and target language; None: those of the training files' names, in alphabetical order.

    Returns:
        The source of each split, and the two languages.

    Raises:
        FileNotFoundError: the folder or a file of a split is missing.
        ValueError: without ``langs``, the training files are not in exactly two languages.
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
    """Split "en,de" into its two names.

    Raises:
        ValueError: they are not two different names.
    """
    parts = text.split(",")
    if len(parts) != 2 or not all(map(is_language, parts)) or parts[0] == parts[1]:
        raise ValueError(f"--langs {text}: must be two different names of letters and digits, such as en,de")
    return parts[0], parts[1]


def is_language(name: str) -> bool:
    """Return whether ``name`` can be the suffix of a corpus file, as in "train.NAME"."""
    return bool(name) and name not in ("gz", "zst") and all(c.isalnum() or c in "-_" for c in name)


def _file_pairs(files: Sequence[Path]) -> tuple[Source, ...]:
    """Make a source of every two files."""
    if not files or len(files) % 2:
        raise ValueError(
            f"{len(files)} files: expected source and target in turn; "
            "for tables give --columns 1,2, for JSON lines --fields en,de"
        )
    sources = [TwoFiles(src=src, tgt=tgt) for src, tgt in zip(files[::2], files[1::2], strict=True)]
    first = languages(sources)
    for source in sources:
        if source.src == source.tgt:
            raise ValueError(f"{display_name(source.src)} is given as source and as target; name two files")
        if first != UNNAMED and languages([source]) == first[::-1]:
            raise ValueError(
                f"{source.src} is given as a source and {sources[0].src} too, but their languages differ: "
                f"name {source.tgt} first"
            )
    return tuple(sources)


def _parse_columns(text: str) -> tuple[int, int] | tuple[str, str] | None:
    """Split "1,2" into its two numbers, "en,de" into its two names; None for an empty text."""
    if not text:
        return None
    parts = text.split(",")
    if len(parts) == 2 and parts[0] != parts[1]:
        first, second = parts
        if all(part.isdecimal() and int(part) for part in parts):
            return int(first), int(second)
        if not any(part.isdecimal() or not part for part in parts):
            return first, second
    raise ValueError(
        f"--columns {text}: must be two different numbers from 1 on, such as 1,2, or two names of the first "
        "line, such as en,de"
    )


def _parse_fields(text: str) -> tuple[str, str]:
    """Split "en,de" into its two field names."""
    parts = text.split(",")
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise ValueError(
            f"--fields {text or '(none)'}: JSON lines need the names of their two texts, "
            "such as en,de or translation.en,translation.de"
        )
    return parts[0], parts[1]


def _folder_languages(root: Path) -> tuple[str, str]:
    """Return the two suffixes of a folder's training files, sorted."""
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    names = [Path(plain_name(path)) for path in sorted(root.iterdir())]
    langs = sorted({name.suffix[1:] for name in names if KINDS["train"].fullmatch(name.stem)})
    if len(langs) != 2:
        raise ValueError(
            f"{root}: train files end in {', '.join(langs) or 'nothing known'}; "
            "give --langs SRC,TGT for the two to read"
        )
    return langs[0], langs[1]
