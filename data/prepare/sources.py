"""Find out what the files are that a user names: pairs of files, tables, JSON lines; and their languages."""

from collections.abc import Sequence
from pathlib import Path

from data.corpus_files import KINDS, corpus_files
from data.text.compression import STDIN, display_name, plain_name
from data.text.formats import Records, Source, Table, TwoFiles

TABLES = (".tsv", ".tab")
RECORDS = (".jsonl", ".ndjson")
UNNAMED = ("src", "tgt")
"""What languages are called that no file name gives away."""


def find_sources(
    files: Sequence[Path],
    *,
    src: Sequence[Path] = (),
    tgt: Sequence[Path] = (),
    columns: str = "",
    fields: str = "",
) -> tuple[Source, ...]:
    """The sources that arguments name.

    Args:
        files: tables, JSON lines, or pairs of files: source, target, source, target, ...
        src: source files, instead of ``files``.
        tgt: their target files, in the same order.
        columns: the two columns of tables, such as "1,2", which is what .tsv files are read by.
        fields: the two fields of JSON lines, such as "en,de" or "translation.en,translation.de".

    Raises:
        ValueError: the arguments fit no format, or contradict each other.
    """
    if bool(src) != bool(tgt) or len(src) != len(tgt) or (src and files):
        raise ValueError(
            f"--src names {len(src)} files, --tgt {len(tgt)}, and {len(files)} stand without either: "
            "give each source file its target file, in one of the two ways"
        )
    if columns and fields:
        raise ValueError("--columns is for tables and --fields for JSON lines: give one of them")
    given = list(files) or [path for both in zip(src, tgt, strict=True) for path in both]
    if given.count(STDIN) > 1:
        raise ValueError("standard input (-) is named twice, and can be read once")
    endings = {Path(plain_name(path)).suffix for path in given}
    if fields or (endings and endings <= {*RECORDS}):
        return tuple(Records(path=path, fields=_fields(fields)) for path in given)
    if columns or (endings and endings <= {*TABLES}):
        return tuple(Table(path=path, columns=_columns(columns or "1,2")) for path in given)
    return _paired(given)


def folder_sources(root: Path, langs: tuple[str, str] | None) -> tuple[dict[str, Source], tuple[str, str]]:
    """The splits of a corpus folder, and its languages where ``langs`` names none."""
    found = langs or _languages_of(root)
    files = corpus_files(root, *found)
    return {split: TwoFiles(src=src, tgt=tgt) for split, (src, tgt) in files.items()}, found


def languages(sources: Sequence[Source]) -> tuple[str, str]:
    """The languages of the first source by file or field names; "src" and "tgt" where they do not tell."""
    match sources[0]:
        case TwoFiles(src=src, tgt=tgt):
            first, second = (Path(plain_name(path)).suffix.removeprefix(".") for path in (src, tgt))
        case Records(fields=fields):
            first, second = (field.rpartition(".")[2] for field in fields)
        case _:
            return UNNAMED
    return (first, second) if first != second and is_language(first) and is_language(second) else UNNAMED


def parse_languages(text: str) -> tuple[str, str]:
    """The two names of "en,de"."""
    parts = text.split(",")
    if len(parts) != 2 or not all(map(is_language, parts)) or parts[0] == parts[1]:
        raise ValueError(f"--langs {text}: must be two different names of letters and digits, such as en,de")
    return parts[0], parts[1]


def is_language(name: str) -> bool:
    """Whether ``name`` can end the name of a file of a corpus."""
    return bool(name) and name not in ("gz", "zst") and all(c.isalnum() or c in "-_" for c in name)


def _paired(files: Sequence[Path]) -> tuple[Source, ...]:
    """Every two files as one source."""
    if not files or len(files) % 2:
        raise ValueError(
            f"{len(files)} files: expected source and target in turn; "
            "a table of both takes --columns 1,2, JSON lines take --fields en,de"
        )
    sources = [TwoFiles(src=src, tgt=tgt) for src, tgt in zip(files[::2], files[1::2], strict=True)]
    first = languages(sources)
    for source in sources:
        if source.src == source.tgt:
            raise ValueError(f"{display_name(source.src)} is given as source and as target; name two files")
        if first != UNNAMED and languages([source]) == first[::-1]:
            raise ValueError(
                f"{source.src} is given as a source and {sources[0].src} too, but their endings differ: "
                f"name {source.tgt} first"
            )
    return tuple(sources)


def _columns(text: str) -> tuple[int, int]:
    """The numbers of "1,2"."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts) or parts[0] == parts[1]:
        raise ValueError(f"--columns {text}: must be two different numbers from 1 on, such as 1,2")
    return int(parts[0]), int(parts[1])


def _fields(text: str) -> tuple[str, str]:
    """The names of "en,de"."""
    parts = text.split(",")
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise ValueError(
            f"--fields {text or '(none)'}: JSON lines need the names of their two texts, "
            "such as en,de or translation.en,translation.de"
        )
    return parts[0], parts[1]


def _languages_of(root: Path) -> tuple[str, str]:
    """The two endings of a folder's training files."""
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    names = [Path(plain_name(path)) for path in sorted(root.iterdir())]
    found = sorted({name.suffix[1:] for name in names if KINDS["train"].fullmatch(name.stem)})
    if len(found) != 2:
        raise ValueError(
            f"{root}: train files end in {', '.join(found) or 'nothing known'}; "
            "say --langs SRC,TGT for the two to read"
        )
    return found[0], found[1]
