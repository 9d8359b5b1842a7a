"""Open a text by the ending of its name, plain, .gz or .zst, or standard input by "-", as a stream."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

PACKED = (".gz", ".zst")
"""Endings of files that are unpacked while they are read."""
STDIN = Path("-")

BUFFER = 1 << 20
"""Bytes held of a file that is being read."""
FEED = 1 << 7
"""Packed bytes given to Zstandard at once: even where it packs 32,768 to 1, only 4 MiB come of them."""


def open_text(path: Path) -> BinaryIO:
    """The unpacked bytes of ``path``, as a stream that the caller closes.

    Raises:
        FileNotFoundError: there is no such file, or it is a folder.
        ValueError: while reading, where a packed file is damaged or ends too early.
    """
    if path == STDIN:
        return open(0, "rb", buffering=BUFFER, closefd=False)
    if path.is_dir():
        raise FileNotFoundError(f"{path}: no such file, for it is a folder; give a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    unpack = {".gz": _gzip, ".zst": _zstandard}.get(path.suffix)
    if unpack is None:
        return path.open("rb", buffering=BUFFER)
    return io.BufferedReader(_Unpacked(path, unpack), BUFFER)


def plain_name(path: Path) -> str:
    """The name of a file without folder and without .gz or .zst."""
    return path.stem if path.suffix in PACKED else path.name


def display_name(path: Path) -> str:
    """What messages call ``path``."""
    return "standard input" if path == STDIN else str(path)


class _Unpacked(io.RawIOBase):
    """The chunks that ``unpack`` makes of a file, as a stream."""

    def __init__(self, path: Path, unpack: Callable[[BinaryIO, Path], Iterator[bytes]]) -> None:
        self._file = path.open("rb")
        self._chunks = unpack(self._file, path)
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
    """The unpacked chunks of a .gz file of one or more members."""
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            while chunk := unpacked.read(BUFFER):
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, error) from None


def _zstandard(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The unpacked chunks of a .zst file of one or more frames; the library's own reader misses a cut end."""
    import zstandard  # imported here: few files need it

    frame, ready = None, bytearray()
    try:
        while packed := file.read(FEED):
            while packed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                ready += frame.decompress(packed)
                packed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
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
