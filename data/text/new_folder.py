"""Make a folder that appears whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.download.digests import file_digest
from data.text.files import sync_folder


def check_vacant(out: Path) -> None:
    """Refuse a place that holds something: a corpus that models were trained on is not written over.

    Raises:
        FileExistsError: ``out`` is a file, or a folder that is not empty.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out} holds something already; name a new folder, or take this one away")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside ``out``, which becomes ``out`` when the block ends well, and goes if not.

    Raises:
        FileExistsError: see ``check_vacant``.
        OSError: ``out`` cannot be written; it is named where the system names no file (a full disk).
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
        shutil.rmtree(temporary, ignore_errors=True)  # gone already where all went well


def described(path: Path) -> dict[str, int | str]:
    """The size and the hash of a file."""
    return {"bytes": path.stat().st_size, "sha256": file_digest(path)}
