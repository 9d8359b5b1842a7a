"""Atomic creation of a folder with its files."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.download.digests import file_digest
from data.text.files import sync_folder


def check_vacant(out: Path) -> None:
    """Check that nothing would be overwritten, such as a corpus that models were trained on.

    Raises:
        FileExistsError: ``out`` is a file or a folder that is not empty.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out} holds something already; name a new folder, or take this one away")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Create a folder whose files appear all together or not at all.

    The context manager gives a temporary folder beside ``out``. The folder is renamed to ``out`` if the
    ``with`` block succeeds, and deleted otherwise.

    Raises:
        FileExistsError: see ``check_vacant``.
        OSError: ``out`` cannot be written; it names ``out`` if the system names no file (disk full).
    """
    check_vacant(out)
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in temporary.iterdir():
            with path.open("r+b") as file:  # Windows syncs only what is open for writing
                os.fsync(file.fileno())
        sync_folder(temporary)
        if out.is_dir():
            out.rmdir()  # it is empty, and Windows does not replace folders
        os.replace(temporary, out)
        sync_folder(out.parent)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(out)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # no longer there if the rename succeeded


def described(path: Path) -> dict[str, int | str]:
    """Return the size in bytes and the sha256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": file_digest(path)}
