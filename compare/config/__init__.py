"""Experiments as TOML files; this file finds those that ship with attnbench."""

import re
from pathlib import Path

from compare.system.messages import did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")
"""A wheel has the shipped experiments inside the package, a checkout beside it."""


def shipped_experiments() -> dict[str, Path]:
    """Return the shipped experiment files by name, sorted."""
    folder = next((folder for folder in FOLDERS if (folder / "demo.toml").is_file()), None)
    return dict(sorted((path.stem, path) for path in folder.glob("*.toml"))) if folder else {}


def find_experiment(path: str | Path) -> Path:
    """Return the file of an experiment: ``path`` if it exists, else the shipped experiment of that name.

    Raises:
        ValueError: neither exists; the message suggests the nearest name.
    """
    path, shipped = Path(path), shipped_experiments()
    is_name = path.name == str(path) and not path.suffix
    if is_name and path.name in shipped and not path.is_file():
        return shipped[path.name]
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the TOML file of an experiment")
    if path.exists():
        return path
    names = list(shipped) if is_name else [file.name for file in path.parent.glob("*.toml")]
    hint = did_you_mean(path.name, names) if names else f"{path.parent} has no TOML file"
    problem = "no such file, and attnbench ships no experiment of that name" if is_name else "no such file"
    raise ValueError(f"{path}: {problem}; {hint}")


def describe_shipped() -> dict[str, str]:
    """Return the first sentence of the comment at the top of each shipped experiment, by name."""
    return {name: _first_sentence(path) for name, path in shipped_experiments().items()}


def _first_sentence(path: Path) -> str:
    comment = re.match(r"(#.*\n)*", path.read_text(encoding="utf-8"))
    text = " ".join(line.strip("# ") for line in (comment[0] if comment else "").splitlines())
    return re.split(r"(?<!et al)\. ", text)[0].rstrip(".")
