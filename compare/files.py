"""Write files so that a reader, or a machine that loses power, never sees half of one."""

import os
import uuid
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by ``content`` (text as UTF-8), whole or not at all; its folder must exist."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)  # gone already where the replacement succeeded


def _sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` durable: it is the folder that remembers names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
