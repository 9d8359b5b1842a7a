"""Lines of text: control characters, counting of words, compression, and text that stays on disk."""

import gzip
import hashlib
import io
import re
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from data.files import ensure_states, file_states

# Visible forms of the characters that a terminal, a browser or a table would obey instead of showing.
#
# File names, labels, error messages and corpora may contain them. ESC becomes ``\x1b``; from DEL on, the form
# is that of JSON, ``\u202e``, so that JSON stays JSON with the same content.


_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Controls, line separators, bidirectional overrides and isolates, and what no file or XML may contain."""
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""Replace every control character of one line of text by an escape sequence such as ``\x1b``."""
    return _OBEYED.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Replace control characters as ``visible`` does, except line feeds and tabs."""
    return _OBEYED.sub(lambda match: match[0] if match[0] in "\n\t" else _spell(match), text)


def _spell(match: re.Match[str]) -> str:
    """Return the escape sequence of a character."""
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}")


# Characters that count as one word each.


UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters and Japanese kana, as the inside of a character class of a regular expression."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def list_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines as a list.

    Raises:
        ValueError: one string instead of several, or what is no string, such as a missing value of pandas.
    """
    texts = list(lines) if isinstance(lines, Iterable) and not isinstance(lines, str) else [lines]
    strange = [text for text in texts if not isinstance(text, str)]
    if strange or isinstance(lines, str):
        raise ValueError(f"expected a list of lines of text, found {[*strange, lines][0]!r:.60}")
    return texts


def count_words(text: str) -> int:
    """Count words between white space; each Chinese character and Japanese kana counts as one word."""
    return len(_WORD.findall(text)) if _UNSPACED.search(text) else len(text.split())


# Reading of plain and .gz files and of standard input as streams of bytes, and packing as .gz.


STDIN = Path("-")
"""The path that stands for standard input."""
BUFFER = 1 << 20
"""Size of read buffers, in bytes."""


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; the suffix of its name decides how it is decompressed.

    Args:
        path: a plain or .gz file, or ``STDIN``.

    Returns:
        A context manager that gives a stream of the decompressed bytes.

    Raises:
        FileNotFoundError: there is no such file, or it is a folder.
        ValueError: a compressed file is damaged or ends too early; raised while it is read.
    """
    if path == STDIN:
        yield cast("BinaryIO", sys.stdin.buffer)
        return
    if path.is_dir():
        raise FileNotFoundError(f"{path}: this is a folder; give a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    with path.open("rb", buffering=BUFFER) as file:
        try:
            yield io.BufferedReader(gzip.GzipFile(fileobj=file), BUFFER) if path.suffix == ".gz" else file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole .gz file ({error}); fetch or pack it again") from None


def plain_or_gzip(path: Path) -> Path:
    """Return ``path``, or ``path``.gz if only that exists."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not path.exists() else path


def pack_gzip(content: bytes) -> bytes:
    """Compress bytes as a .gz file without a time, so that the same content gives the same file."""
    return gzip.compress(content, mtime=0)


def read_decompressed(path: Path) -> bytes:
    """Read a whole file as ``read_bytes`` does; a .gz file is decompressed."""
    with open_text(path) as file:
        return file.read()


def hash_decompressed(path: Path) -> str:
    """Compute the sha256 of a file's content, decompressed if the file is .gz."""
    digest = hashlib.sha256()
    with open_text(path) as file:
        while chunk := file.read(BUFFER):
            digest.update(chunk)
    return digest.hexdigest()


def plain_name(path: Path) -> str:
    """Return the name of a file without its folder and without .gz."""
    return path.name.removesuffix(".gz")


def display_name(path: Path) -> str:
    """Return the name of ``path`` in messages."""
    return "standard input" if path == STDIN else str(path)


# Reading of text line by line; malformed input raises ValueError with file and line.


UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16, which often lacks them; then each of the first letters has a zero beside it."""
TEXTS_PER_UPDATE = 100
"""Texts that ``hash_texts`` joins before it hashes them."""


def read_lines(path: Path, *, allow_blank: bool = False, keep_mark: bool = False) -> tuple[str, ...]:
    """Read all lines of a file into memory; see ``iter_lines`` for arguments and errors."""
    return tuple(iter_lines(path, allow_blank=allow_blank, keep_mark=keep_mark))


def iter_lines(
    path: Path, *, allow_blank: bool = False, keep_broken: bool = False, keep_mark: bool = False
) -> Generator[str, None, None]:
    r"""Stream the lines of a file.

    Only ``\n`` ends a line. One ``\r`` before it and a byte order mark at the start of the file are removed.

    Args:
        path: a file in UTF-8, plain or .gz, or "-" for standard input.
        allow_blank: yield blank lines; otherwise they raise ValueError, because they cannot be translated.
        keep_broken: decode bytes that are not UTF-8 as U+DC80 to U+DCFF; otherwise they raise ValueError.
        keep_mark: keep a byte order mark as a character of the first line.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, a line is blank or not UTF-8, or compressed data is damaged.
    """
    name, number = display_name(path), 0
    encoding, errors = "utf-8" if keep_mark else "utf-8-sig", "surrogateescape" if keep_broken else "strict"
    with open_text(path) as file:
        start = file.peek(4)[:4]  # type: ignore[attr-defined]  # all of ours are buffered
        if start.startswith(UTF16_MARKS) or b"\0\0" in (start[::2], start[1::2]):
            raise ValueError(f"{name} begins like UTF-16: save the file as UTF-8")
        lines = io.TextIOWrapper(file, encoding, errors, newline="\n")
        try:
            for number, ended in enumerate(lines, start=1):
                line = ended.removesuffix("\n").removesuffix("\r")
                if not (allow_blank or line.strip()):
                    raise ValueError(
                        f"{name}, line {number}: the line is empty; remove this pair from both files"
                    )
                yield line
        except UnicodeDecodeError as error:
            number += 1 + error.object.count(b"\n", 0, error.start)
            raise ValueError(
                f"{name}, line {number}: 0x{error.object[error.start]:02x} is not UTF-8 ({error.reason}); "
                "save the file as UTF-8 (from Windows: iconv -f CP1252 -t UTF-8)"
            ) from None
        finally:
            lines.detach()  # which would close standard input
    if not number:
        raise ValueError(f"{name} is empty; expected one sentence per line")


def ensure_parallel(src: Path, src_lines: int, tgt: Path, tgt_lines: int) -> None:
    """Raise ValueError if two files differ in their number of lines."""
    if src_lines != tgt_lines:
        raise ValueError(
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


# Text that stays on disk, so that a training set may be larger than memory.


class TextFile(Sequence[str]):
    """Sequence of the lines of a file, which are read from disk by each iteration.

    The constructor reads the file once to check, count and hash its lines. Only one block of lines is in
    memory at a time. An index or a slice, which must go forward, reads the file up to its end.

    Args:
        path: the file; see ``iter_lines`` for the supported kinds.

    Raises:
        FileNotFoundError: see ``iter_lines``.
        ValueError: see ``iter_lines``; also while reading, if the file has changed since it was counted.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._states = path, 0, file_states(path)
        self.sha256 = hash_texts(self._count_lines())
        """The hash of the lines by ``hash_texts``."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        with ensure_states(self._states):
            yield from iter_lines(self.path)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(len(self))))
        return next(islice(self, range(len(self))[index], None))

    def _count_lines(self) -> Iterator[str]:
        for line in self:
            self._size += 1
            yield line


def hash_lines(lines: Sequence[str]) -> str:
    """Compute the hash of ``lines`` by ``hash_texts``, or return that of a ``TextFile``."""
    return lines.sha256 if isinstance(lines, TextFile) else hash_texts(lines)
