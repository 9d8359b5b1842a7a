"""TOML as this project reads and writes it."""

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.text.files import ensure_regular

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
