"""Reading of text line by line; malformed input raises ValueError with file and line."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from data.text.compression import display_name, open_text

BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1 << 20
"""Upper bound on a line, in bytes: a longer one is not a sentence and could fill the memory."""


def read_lines(path: Path, *, allow_blank: bool = False) -> tuple[str, ...]:
    """Read all lines of a file into memory; see ``iter_lines`` for arguments and errors."""
    return tuple(line for _, line in iter_lines(path, allow_blank=allow_blank))


def iter_lines(
    path: Path, *, allow_blank: bool = False, keep_broken: bool = False
) -> Iterator[tuple[int, str]]:
    r"""Stream the lines of a file.

    Only ``\n`` ends a line. One ``\r`` before it and a byte order mark at the start of the file are removed.

    Args:
        path: a file in UTF-8, plain, .gz or .zst, or "-" for standard input.
        allow_blank: yield blank lines; otherwise they raise ValueError, because they cannot be translated.
        keep_broken: decode bytes that are not UTF-8 as U+DC80 to U+DCFF; otherwise they raise ValueError.

    Returns:
        Number, from 1, and text of each line.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, a line is blank, too long or not UTF-8, or compressed data is damaged.
    """
    number, name = 0, display_name(path)
    errors = "surrogateescape" if keep_broken else "strict"
    with open_text(path) as file:
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise ValueError(
                    f"{name}, line {number}: over {MAX_LINE_BYTES:,} bytes; expected one sentence per line"
                )
            try:
                line = raw.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise _utf8_error(f"{name}, line {number}", raw, error) from None
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
                if not line:
                    number = 0
                    break  # the file holds only a byte order mark
            line = line.removesuffix("\n").removesuffix("\r")
            if not (allow_blank or line.strip()):
                raise ValueError(
                    f"{name}, line {number}: the line is empty; remove this pair from both files"
                )
            yield number, line
    if not number:
        raise ValueError(f"{name} is empty; expected one sentence per line")


def line_count_error(src: Path, src_lines: int, tgt: Path, tgt_lines: int) -> ValueError:
    """Make the error for two files that must be parallel but differ in their number of lines."""
    return ValueError(
        f"{display_name(src)} has {src_lines} lines but {display_name(tgt)} has {tgt_lines}: "
        "line i of one must translate line i of the other; make the files parallel"
    )


def hash_texts(texts: Iterable[str]) -> str:
    """Compute the sha256 of a sequence of texts.

    The length of each text is hashed too, so that ("ab", "c") and ("a", "bc") have different hashes.
    """
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.hexdigest()


def _utf8_error(context: str, raw: bytes, error: UnicodeDecodeError) -> ValueError:
    """Make the error for a line that is not UTF-8; ``context`` names file and line."""
    hint = "; it begins like UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return ValueError(
        f"{context}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8 ({error.reason}{hint}); "
        "save the file as UTF-8"
    )
