"""Experiments as written: TOML files, overrides, checked sections; here those that ship with attnbench."""

import re
from pathlib import Path

from compare.system.messages import did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")
"""Where the shipped experiments may be: the wheel has them inside the package, a checkout beside it."""


def shipped_experiments() -> dict[str, Path]:
    """Return the files of all experiments that ship with the package, by name, sorted."""
    folder = next((folder for folder in FOLDERS if (folder / "demo.toml").is_file()), None)
    return dict(sorted((path.stem, path) for path in folder.glob("*.toml"))) if folder else {}


def find_experiment(path: str | Path) -> Path:
    """Return the file of an experiment: ``path`` itself, or the shipped experiment of that name.

    An existing file is always meant before a name.

    Raises:
        ValueError: neither a file nor the name of a shipped experiment; the message suggests the nearest.
    """
    path = Path(path)
    if path.is_file() or path.name != str(path) or path.suffix:
        return path  # opening it tells what is wrong with it
    shipped = shipped_experiments()
    if path.name in shipped or path.exists():
        return shipped.get(path.name, path)
    raise ValueError(
        f"{path}: no such file, and no experiment of that name ships with attnbench; "
        f"{did_you_mean(path.name, shipped)}"
    )


def describe_shipped() -> dict[str, str]:
    """Return the name and the description (the comment at the beginning) of each shipped experiment."""
    return {name: _first_sentence(path) for name, path in shipped_experiments().items()}


def _first_sentence(path: Path) -> str:
    """Return the first sentence of the comment that a file begins with."""
    comment = re.match(r"(#.*\n)*", path.read_text(encoding="utf-8"))
    text = " ".join(line.strip("# ") for line in (comment[0] if comment else "").splitlines())
    return re.split(r"(?<!et al)\. ", text)[0].rstrip(".")
