"""Read the lines of a text file, plain or .gz; what cannot be right is one error that says where."""

import gzip
import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Path, *, allow_blank: bool = False) -> tuple[str, ...]:
    r"""The lines of a UTF-8 file, split at ``\n`` alone; a closing ``\r`` and a leading BOM are cut.

    A blank line is an error, for nothing translates it, unless ``allow_blank``: a model may write nothing.
    """
    lines = _decoded(path, _content(path)).removeprefix(BYTE_ORDER_MARK).split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last line's end is no line
    if not lines:
        raise ValueError(f"{path} is empty; expected one sentence a line")
    lines = [line.removesuffix("\r") for line in lines]
    for number, line in enumerate(lines, start=1):
        if not (allow_blank or line.strip()):
            raise ValueError(f"{path}, line {number}: the line is empty; take this pair out of both files")
    return tuple(lines)


def hash_texts(texts: Iterable[str]) -> str:
    """The sha256 of a sequence of texts; each one's length keeps ("ab", "c") apart from ("a", "bc")."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked where its name ends in .gz."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole .gz file ({error}); fetch or pack it again") from None


def _decoded(path: Path, content: bytes) -> str:
    """``content`` as UTF-8; an error names line, byte and value."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line_start = content.rfind(b"\n", 0, error.start) + 1
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {number}, byte {error.start - line_start + 1}: 0x{content[error.start]:02x} "
            f"is not UTF-8 ({error.reason}); save the file as UTF-8"
        ) from None
