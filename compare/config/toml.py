"""TOML: reading and writing, the schema of config files, and the experiments that ship with attnbench."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.system.messages import did_you_mean
from data.files import ensure_regular

# TOML as this project reads and writes it.


MAX_BYTES = 1_000_000
"""Largest config file that is read; a thousand models fit in."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file.

    Raises:
        ValueError: the file is too large, not TOML, or nested too deeply.
    """
    ensure_regular(path)
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: over {MAX_BYTES:,} bytes: too large for an experiment file")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError(f"{path}: not TOML: nested too deeply") from None
    except ValueError as error:  # invalid TOML or UTF-8, or a number with thousands of digits
        raise ValueError(f"{path}: not TOML: {error}") from None


def parse_value(text: str) -> Any:
    """Read the value of an option: TOML, or else a bare string."""
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def to_toml(
    sections: Mapping[str, Any], models: Iterable[Mapping[str, Any]], plugins: Sequence[str] = ()
) -> str:
    """Write an experiment, leaving out what is None.

    Args:
        sections: config dataclasses by name.
        models: ``[[models]]`` tables.
        plugins: names of modules.
    """
    lines = [*toml_assignments({"plugins": list(plugins)}), ""] if plugins else []
    for name, section in sections.items():
        lines += [f"[{name}]", *toml_assignments(dataclasses.asdict(section)), ""]
    for table in models:
        lines += ["[[models]]", *toml_assignments(table), ""]
    return "\n".join(lines)


def toml_assignments(values: Mapping[str, Any]) -> list[str]:
    """Write lines ``key = value``, leaving out None.

    JSON writes numbers, strings and bools as TOML does, except for DEL, which TOML wants escaped.
    """
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items() if value is not None}
    return [f"{key} = {text}".replace("\x7f", "\\u007f") for key, text in texts.items()]


# Version of the files in a run folder.


SCHEMA = 5


def check_schema(table: Mapping[str, Any], path: object) -> dict[str, Any]:
    """Take the version of the files out of a parsed config file; without one it was written by hand.

    Raises:
        ValueError: the file was written by another version of attnbench.
    """
    if (schema := table.get("schema", SCHEMA)) != SCHEMA:
        raise ValueError(
            f"{path}: its schema is {schema!r}, but this version of attnbench reads schema {SCHEMA}: use the "
            "version that wrote it, or run the experiment again"
        )
    return {key: value for key, value in table.items() if key != "schema"}


# Experiments that ship with attnbench: ``configs/`` of a checkout, ``compare/configs`` when installed.


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
