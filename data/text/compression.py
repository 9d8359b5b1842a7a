"""Reading of plain, .gz and .zst files and of standard input as streams of bytes, and packing as .gz."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from data.text.files import ensure_regular, hash_file, read_bytes

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


def read_decompressed(path: Path, *, max_bytes: int) -> bytes:
    """Read a whole file of an experiment as ``read_bytes`` does; a .gz or .zst file is decompressed.

    Args:
        path: the file.
        max_bytes: size that the content of no such file reaches.

    Raises:
        OSError: ``path`` cannot be read, or is a folder.
        ValueError: ``path`` is no regular file, is damaged, or its content is larger than ``max_bytes``.
    """
    if path.suffix not in COMPRESSED_SUFFIXES:
        return read_bytes(path, max_bytes=max_bytes)
    ensure_regular(path)
    with open_text(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path}: over {max_bytes:,} bytes; no {plain_name(path)} is so large")
    return content


def hash_decompressed(path: Path) -> str:
    """Compute the sha256 of a regular file's content, decompressed if the file is .gz or .zst.

    Raises:
        OSError: ``path`` cannot be read, or is a folder.
        ValueError: ``path`` is no regular file, or is damaged.
    """
    if path.suffix not in COMPRESSED_SUFFIXES:
        return hash_file(path)
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
