"""Write files so that a reader, or a machine that loses power, finds the old one or the whole new one."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

FileState = tuple[int, ...] | None
"""What tells a file from one written later; None where there is none."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by ``content`` (text as UTF-8), whole or not at all; makes its folder if need be.

    Raises:
        OSError: a full disk, a read-only folder, a folder of that name: it names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(
        f".{path.name}.{uuid.uuid4().hex}.tmp"
    )  # as open as the umask lets any file be
    with _naming(path):
        try:
            with temporary.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)  # gone already where the replacement succeeded


def append_whole(path: Path, text: str) -> None:
    """Add ``text`` to the end of a file, all of it or, where there is no room, nothing.

    Raises:
        OSError: it cannot be written; it names ``path``.
    """
    content = memoryview(text.encode())
    with _naming(path), path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(end)
            raise


def file_states(*paths: Path) -> dict[Path, FileState]:
    """What is another once one of the files ``paths`` has been written to or replaced."""
    return {path: _state(path) for path in paths}


def ensure_unchanged(*paths: Path) -> AbstractContextManager[None]:
    """Fail if one of the files ``paths`` is written to or replaced while the block reads them."""
    return as_before(file_states(*paths))


@contextmanager
def as_before(before: Mapping[Path, FileState]) -> Iterator[None]:
    """Fail if, once the block has read them, a file is not as it was when ``file_states`` looked.

    Raises:
        ValueError: what was read may be half of the old text and half of the new.
    """
    fault = None
    try:
        yield
    except ValueError as error:
        fault = error  # which a change would explain
    for path, state in before.items():
        if _state(path) != state:
            raise ValueError(f"{path} was changed while it was read; run this again once it is written")
    if fault is not None:
        raise fault


def json_bytes(content: Any) -> bytes:
    """``content`` as JSON in UTF-8, the same bytes for the same content."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def parse_json(text: str | bytes) -> Any:
    """The value that ``text`` is the JSON of; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error of the system name ``path``, and not a temporary file or nothing at all."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _state(path: Path) -> FileState:
    """Number, size and time of a file."""
    try:
        found = path.stat()
    except OSError:
        return None  # whoever reads it says what is wrong
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` outlast a power cut: it is the folder that remembers names."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot open folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
