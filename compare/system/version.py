"""Which code produced a row."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("compare", "data", "seq2seq", "transformer")


@cache
def code_version() -> str:
    """The package's version and a hash of its sources, so that an edited checkout is told from a release."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for room in PACKAGES:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    try:
        version = metadata.version("attnbench")
    except metadata.PackageNotFoundError:
        version = "source"
    return f"{version}+{digest.hexdigest()[:12]}"
