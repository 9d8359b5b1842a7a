"""Experiments that ship with attnbench: ``configs/`` of a checkout, ``compare/configs`` when installed."""

import re
from pathlib import Path

from compare.system.hints import did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")
"""Where they may be: the wheel has them inside the package, a checkout beside it."""


def shipped_experiments() -> dict[str, Path]:
    """Return the files of all experiments that ship with the package, by name, sorted."""
    folder = next((folder for folder in FOLDERS if (folder / "demo.toml").is_file()), None)
    return dict(sorted((path.stem, path) for path in folder.glob("*.toml"))) if folder else {}


def find_experiment(path: str | Path) -> Path:
    """Return the file of an experiment: ``path`` itself, or the shipped experiment of that name.

    An existing file is always meant before a name.

    Args:
        path: a file, or a name such as "demo".

    Raises:
        ValueError: neither a file nor the name of a shipped experiment; the message suggests the nearest.
    """
    path = Path(path)
    if path.is_file() or path.name != str(path) or path.suffix:
        return path  # opening it tells what is wrong with it
    shipped = shipped_experiments()
    if path.name in shipped:
        return shipped[path.name]
    if path.exists():
        return path
    raise ValueError(
        f"{path}: no such file, and no experiment of that name ships with attnbench; "
        f"{did_you_mean(path.name, shipped)}"
    )


def describe_shipped() -> list[dict[str, str]]:
    """Return name, file and description (the comment at the beginning) of each shipped experiment."""
    return [
        {"name": name, "about": _first_comment(path), "file": str(path)}
        for name, path in shipped_experiments().items()
    ]


def _first_comment(path: Path) -> str:
    """Return the first sentence of the comment that a file begins with."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return re.split(r"(?<!et al)\. ", " ".join(lines))[0].rstrip(".")
