"""Conversion of path arguments of public functions to lists."""

from collections.abc import Sequence
from pathlib import Path


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Convert one path or several to a list of ``Path``s; a string is one path, not a list of letters."""
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
