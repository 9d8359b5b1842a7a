"""Write files so that a reader, or a machine that loses power, finds the old one or the whole new one."""

import json
import os
import uuid
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by ``content`` (text as UTF-8), whole or not at all; makes its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(
        f".{path.name}.{uuid.uuid4().hex}.tmp"
    )  # as open as the umask lets any file be
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)  # gone already where the replacement succeeded


def json_bytes(content: Any) -> bytes:
    """``content`` as JSON in UTF-8, the same bytes for the same content."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` outlast a power cut: it is the folder that remembers names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
