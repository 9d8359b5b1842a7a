"""Version of the package, and a hash of its sources."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("compare", "data", "seq2seq", "transformer")


def package_version() -> str:
    """The version of the installed distribution; "source" if attnbench runs from a checkout alone."""
    try:
        return metadata.version("attnbench")
    except metadata.PackageNotFoundError:
        return "source"


@cache
def code_version() -> str:
    """The package's version and a hash of its sources, so that an edited checkout differs from a release."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    return f"{package_version()}+{digest.hexdigest()[:12]}"
