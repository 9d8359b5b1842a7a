"""Lines of text: control characters, counting of words, compression, and text that stays on disk."""

import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, overload

from data.files import ensure_regular, ensure_states, file_states

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


# Characters that a corpus should not contain, and characters that count as one word each.


SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, or a byte that was not UTF-8; neither can be written to a file."""
BROKEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff\ud800-\udfff]")
"""Controls except white space, replacement characters, noncharacters and surrogates."""

UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters and Japanese kana, as the inside of a character class of a regular expression."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def count_words(text: str) -> int:
    """Count words between white space; each Chinese character and Japanese kana counts as one word."""
    return len(_WORD.findall(text)) if _UNSPACED.search(text) else len(text.split())


def unspaced(text: str) -> bool:
    """Whether ``text`` contains Chinese characters or kana, which are written without spaces."""
    return _UNSPACED.search(text) is not None


# Reading of plain, .gz and .zst files and of standard input as streams of bytes, and packing as .gz.


COMPRESSED_SUFFIXES = (".gz", ".zst")
"""Suffixes of files that are decompressed while they are read."""
STDIN = Path("-")
"""The path that stands for standard input."""

BUFFER = 1 << 20
"""Size of read buffers, in bytes."""
ZSTD_INPUT_BYTES = 1 << 7
"""Compressed bytes given to Zstandard at a time: even at a ratio of 32,768 they become only 4 MiB."""


def open_text(path: Path) -> BinaryIO:
    """Open a file for reading; the suffix of its name decides how it is decompressed.

    Args:
        path: a plain, .gz or .zst file, or ``STDIN``.

    Returns:
        A stream of the decompressed bytes; the caller closes it. Reading raises ValueError if a compressed
        file is damaged or ends too early.

    Raises:
        FileNotFoundError: there is no such file, or it is a folder.
    """
    if path == STDIN:
        return open(0, "rb", buffering=BUFFER, closefd=False)
    if path.is_dir():
        raise FileNotFoundError(f"{path}: this is a folder; give a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    decompress = {".gz": _gzip, ".zst": _zstandard}.get(path.suffix)
    if decompress is None:
        return path.open("rb", buffering=BUFFER)
    return io.BufferedReader(_DecompressedFile(path, decompress), BUFFER)


def plain_or_gzip(path: Path) -> Path:
    """Return ``path``, or ``path``.gz if only that exists."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not path.exists() else path


def pack_gzip(content: bytes) -> bytes:
    """Compress bytes as a .gz file without a time, so that the same content gives the same file."""
    return gzip.compress(content, mtime=0)


def read_decompressed(path: Path) -> bytes:
    """Read a whole file of an experiment as ``read_bytes`` does; a .gz or .zst file is decompressed.

    Raises:
        OSError: ``path`` cannot be read, or is a folder.
        ValueError: ``path`` is no regular file, or is damaged.
    """
    ensure_regular(path)
    with open_text(path) as file:
        return file.read()


def hash_decompressed(path: Path) -> str:
    """Compute the sha256 of a regular file's content, decompressed if the file is .gz or .zst.

    Raises:
        OSError: ``path`` cannot be read, or is a folder.
        ValueError: ``path`` is no regular file, or is damaged.
    """
    ensure_regular(path)
    digest = hashlib.sha256()
    with open_text(path) as file:
        while chunk := file.read(BUFFER):
            digest.update(chunk)
    return digest.hexdigest()


def plain_name(path: Path) -> str:
    """Return the name of a file without its folder and without .gz or .zst."""
    return path.stem if path.suffix in COMPRESSED_SUFFIXES else path.name


def display_name(path: Path) -> str:
    """Return the name of ``path`` in messages."""
    return "standard input" if path == STDIN else str(path)


class _DecompressedFile(io.RawIOBase):
    """Stream of the chunks that ``decompress`` yields of a file."""

    def __init__(self, path: Path, decompress: Callable[[BinaryIO, Path], Iterator[bytes]]) -> None:
        self._file = path.open("rb")
        self._chunks = decompress(self._file, path)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _gzip(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Decompress a .gz file of one or more members, chunk by chunk."""
    try:
        with gzip.GzipFile(fileobj=file) as decompressed:
            while chunk := decompressed.read(BUFFER):
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, error) from None


def _zstandard(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Decompress a .zst file of one or more frames, chunk by chunk.

    The reader of the library does not notice a file that ends too early.
    """
    import zstandard  # imported here: few files need it

    frame, ready = None, bytearray()
    try:
        while compressed := file.read(ZSTD_INPUT_BYTES):
            while compressed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                ready += frame.decompress(compressed)
                compressed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            if len(ready) >= BUFFER:
                yield bytes(ready)
                ready.clear()
    except zstandard.ZstdError as error:
        raise _damaged(path, error) from None
    if frame is not None:
        raise _damaged(path, "it ends in the middle of a frame")
    yield bytes(ready)


def _damaged(path: Path, reason: object) -> ValueError:
    return ValueError(f"{path}: not a whole {path.suffix} file ({reason}); fetch or pack it again")


# Reading of text line by line; malformed input raises ValueError with file and line.


BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1 << 20
"""Upper bound on a line, in bytes: a longer one is not a sentence and could fill the memory."""
BLOCK_BYTES = 1 << 16
"""Bytes that are read at a time, few enough for a core's cache; the rest of the last line is read too."""
TEXTS_PER_UPDATE = 100
"""Texts that ``hash_texts`` joins before it hashes them."""


def read_lines(path: Path, *, allow_blank: bool = False) -> tuple[str, ...]:
    """Read all lines of a file into memory; see ``iter_lines`` for arguments and errors."""
    return tuple(iter_lines(path, allow_blank=allow_blank))


def iter_lines(
    path: Path, *, allow_blank: bool = False, keep_broken: bool = False
) -> Generator[str, None, None]:
    r"""Stream the lines of a file.

    Only ``\n`` ends a line. One ``\r`` before it and a byte order mark at the start of the file are removed.

    Args:
        path: a file in UTF-8, plain, .gz or .zst, or "-" for standard input.
        allow_blank: yield blank lines; otherwise they raise ValueError, because they cannot be translated.
        keep_broken: decode bytes that are not UTF-8 as U+DC80 to U+DCFF; otherwise they raise ValueError.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, a line is blank, too long or not UTF-8, or compressed data is damaged.
    """
    for block in _blocks(path, allow_blank=allow_blank, keep_broken=keep_broken):
        yield from block


def _blocks(path: Path, *, allow_blank: bool, keep_broken: bool) -> Iterator[list[str]]:
    """Stream the lines of a file in lists of about ``BLOCK_BYTES``; an error comes after its block."""
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

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(len(self))))
        return next(islice(self, range(len(self))[index], None))

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` has the same lines, on disk or in memory."""
        if not isinstance(other, TextFile | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # the file may change

    def _count_lines(self) -> Iterator[str]:
        for line in self:
            self._size += 1
            yield line


def hash_lines(lines: Sequence[str]) -> str:
    """Compute the hash of ``lines`` by ``hash_texts``, or return that of a ``TextFile``."""
    return lines.sha256 if isinstance(lines, TextFile) else hash_texts(lines)
