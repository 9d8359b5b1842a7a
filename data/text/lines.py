"""Read the lines of a text, whole or as a stream; what cannot be right is one error that says where."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from data.text.compression import display_name, open_text

BYTE_ORDER_MARK = "\ufeff"
LONGEST = 1 << 20
"""Bytes that a line may have: what is longer is no sentence, and would not fit in memory for long."""


def read_lines(path: Path, *, allow_blank: bool = False) -> tuple[str, ...]:
    """All lines of a file at once; see ``iter_lines``."""
    return tuple(line for _, line in iter_lines(path, allow_blank=allow_blank))


def iter_lines(
    path: Path, *, allow_blank: bool = False, keep_broken: bool = False
) -> Iterator[tuple[int, str]]:
    r"""Number and text of each line, split at ``\n`` alone; a closing ``\r`` and a leading BOM are cut.

    Args:
        path: a file in UTF-8, plain, .gz or .zst, or "-" for standard input.
        allow_blank: let blank lines pass; else one is an error, for nothing translates it.
        keep_broken: give bytes that are not UTF-8 as U+DC80 to U+DCFF; else one is an error.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the text is empty, a line is blank, too long or not UTF-8, or the packing is damaged.
    """
    number, name = 0, display_name(path)
    errors = "surrogateescape" if keep_broken else "strict"
    with open_text(path) as file:
        while raw := file.readline(LONGEST + 1):
            number += 1
            if len(raw) > LONGEST:
                raise ValueError(
                    f"{name}, line {number}: over {LONGEST:,} bytes; expected one sentence a line"
                )
            try:
                line = raw.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise _not_utf8(f"{name}, line {number}", raw, error) from None
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
                if not line:
                    number = 0
                    break  # a mark and nothing else
            line = line.removesuffix("\n").removesuffix("\r")
            if not (allow_blank or line.strip()):
                raise ValueError(
                    f"{name}, line {number}: the line is empty; take this pair out of both files"
                )
            yield number, line
    if not number:
        raise ValueError(f"{name} is empty; expected one sentence a line")


def unequal(src: Path, src_lines: int, tgt: Path, tgt_lines: int) -> ValueError:
    """What to raise where two files of a corpus differ in their number of lines."""
    return ValueError(
        f"{display_name(src)} has {src_lines} lines but {display_name(tgt)} has {tgt_lines}: "
        "line i of one must translate line i of the other; make the files parallel"
    )


def hash_texts(texts: Iterable[str]) -> str:
    """The sha256 of a sequence of texts; each one's length keeps ("ab", "c") apart from ("a", "bc")."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.hexdigest()


def _not_utf8(place: str, raw: bytes, error: UnicodeDecodeError) -> ValueError:
    """The error that names line, byte and value."""
    hint = "; it begins like UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return ValueError(
        f"{place}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8 ({error.reason}{hint}); "
        "save the file as UTF-8"
    )
