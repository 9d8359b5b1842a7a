"""Reading of text line by line; malformed input raises ValueError with file and line."""

import hashlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from data.text.compression import display_name, open_text

BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1 << 20
"""Upper bound on a line, in bytes: a longer one is not a sentence and could fill the memory."""
BLOCK_BYTES = 1 << 16
"""Bytes that are read at a time, few enough for a core's cache; the rest of the last line is read too."""
TEXTS_PER_UPDATE = 100
"""Texts that ``hash_texts`` joins before it hashes them."""


def read_lines(path: Path, *, allow_blank: bool = False) -> tuple[str, ...]:
    """Read all lines of a file into memory; see ``iter_lines`` for arguments and errors."""
    return tuple(chain.from_iterable(iter_blocks(path, allow_blank=allow_blank)))


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
    return enumerate(
        chain.from_iterable(iter_blocks(path, allow_blank=allow_blank, keep_broken=keep_broken)), start=1
    )


def iter_blocks(path: Path, *, allow_blank: bool = False, keep_broken: bool = False) -> Iterator[list[str]]:
    """Stream the lines of a file in lists of about ``BLOCK_BYTES``; see ``iter_lines``.

    The lines before a bad one are given before its error is raised.
    """
    count, name = 0, display_name(path)
    errors = "surrogateescape" if keep_broken else "strict"
    with open_text(path) as file:
        for raw in _raw_blocks(file):
            lines = _decode_block(raw, count, errors)
            if lines is None or not (allow_blank or all(map(str.strip, lines))):
                lines, error = _decode_lines(raw, f"{name}, line", count, errors, allow_blank=allow_blank)
                yield lines
                raise error
            count += len(lines)
            yield lines
    if not count:
        raise ValueError(f"{name} is empty; expected one sentence per line")


def _raw_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Read a file in blocks of whole lines; a line over ``MAX_LINE_BYTES`` is the last one of its block."""
    while raw := file.read1(BLOCK_BYTES):  # type: ignore[attr-defined]  # all of ours are buffered
        yield raw if raw.endswith(b"\n") else raw + file.readline(MAX_LINE_BYTES + 1)


def _decode_block(raw: bytes, before: int, errors: str) -> list[str] | None:
    """Decode a block at once; None if a line of it is too long or not UTF-8.

    Args:
        raw: whole lines with their ends.
        before: number of lines before the block.
        errors: treatment of bytes that are not UTF-8, as for ``bytes.decode``.
    """
    if len(raw) - raw.rfind(b"\n", 0, -1) - 1 > MAX_LINE_BYTES:
        return None
    try:
        text = raw.decode("utf-8", errors)
    except UnicodeDecodeError:
        return None
    if not before:
        text = text.removeprefix(BYTE_ORDER_MARK)
        if not text:
            return []  # the file holds only a byte order mark
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _decode_lines(
    block: bytes, context: str, before: int, errors: str, *, allow_blank: bool
) -> tuple[list[str], ValueError]:
    """Decode a block that has a bad line.

    Args:
        block: whole lines with their ends.
        context: begins the message of an error, before the number of the line.
        before: number of lines before the block.
        errors: see ``_decode_block``.
        allow_blank: whether a blank line is good.

    Returns:
        The lines before the first bad one, and the error of that one.
    """
    lines: list[str] = []
    for number, raw in enumerate(BytesIO(block), start=before + 1):
        if len(raw) > MAX_LINE_BYTES:
            message = f"{context} {number}: over {MAX_LINE_BYTES:,} bytes; expected one sentence per line"
            return lines, ValueError(message)
        try:
            line = raw.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            return lines, _utf8_error(f"{context} {number}", raw, error)
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        line = line.removesuffix("\n").removesuffix("\r")
        if not (allow_blank or line.strip()):
            message = f"{context} {number}: the line is empty; remove this pair from both files"
            return lines, ValueError(message)
        lines.append(line)
    raise AssertionError("a block without a bad line")


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
    remaining = iter(texts)
    while contents := [text.encode() for text in islice(remaining, TEXTS_PER_UPDATE)]:
        digest.update(b"".join([b"%d:%b" % (len(content), content) for content in contents]))
    return digest.hexdigest()


def _utf8_error(context: str, raw: bytes, error: UnicodeDecodeError) -> ValueError:
    """Make the error for a line that is not UTF-8; ``context`` names file and line."""
    hint = "; it begins like UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return ValueError(
        f"{context}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8 ({error.reason}{hint}); "
        "save the file as UTF-8"
    )
