"""Version of the package, and hashes of its sources and of those of plug-ins."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

from compare.system.plugins import plugin_versions

PACKAGES = ("compare", "data", "seq2seq", "transformer")
HASH_DIGITS = 12
"""Digits of a sha256 that a version shows."""


def package_version() -> str:
    """The version of the installed distribution; "source" if attnbench runs from a checkout alone."""
    return distribution_version("attnbench")


def distribution_version(name: str) -> str:
    """The version of an installed distribution; "source" if it is not installed as one."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "source"


def hash_sources(files: Iterable[tuple[Path, Path]]) -> str:
    """Hash source files, each given as (folder, path), with their paths below their folders."""
    digest = hashlib.sha256()
    for folder, path in files:
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:HASH_DIGITS]


@cache
def source_version() -> str:
    """The package's version and a hash of its sources, so that an edited checkout differs from a release."""
    root = Path(__file__).resolve().parents[2]
    files = [(root, path) for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return f"{package_version()}+{hash_sources(files)}"


def code_version(plugins: Iterable[str] = ()) -> str:
    """``source_version``, and the version of each plug-in that took part.

    Args:
        plugins: names of the modules of plug-ins that this process has imported.
    """
    versions = plugin_versions(plugins)
    return f"{source_version()} with {versions}" if versions else source_version()
