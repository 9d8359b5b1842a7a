"""TOML: reading and writing, the schema of config files, and the experiments that ship with attnbench."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

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


# Version of the files in a run folder, and the names that earlier versions used.
#
# Schema 1: all run folders without a ``schema`` key in config.toml; ``train.device`` may be "auto" there.
# Schema 2: config.toml contains ``schema = 2`` and names the device that was used. Schema 3: rows have a hash
# of their shared settings, a length penalty chosen on validation and common timings. Schema 4:
# ``data.train_size`` holds for any corpus; before, it had no effect on one from a folder.


SCHEMA = 4

Kind = Literal["config", "preset", "parameter", "trainer state", "result"]

RENAMED: dict[Kind, dict[str, str]] = {
    "config": {"decode.length_penalty": "decode.length_penalties"},  # a number is a list of one
    "preset": {"gnmt-4": "bahdanau-4x1024"},
    "parameter": {},
    "trainer state": {"ledger": "progress", "window": "running_metrics"},
    "result": {},
}
"""By kind, each old name and its current one: "section.key" of a config ("models.key" for models), presets,
parameters of weights files, keys of the trainer state, and fields of result.json. Files are read by this
table and never rewritten."""


def current_names(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old names among the keys of ``values`` by the current ones."""
    return {RENAMED[kind].get(name, name): value for name, value in values.items()}


REDEFINED = ("train_mfu", "latency_ms_p95")
"""Fields of result.json that had another definition before timings in turn: they were relative to a measured
peak and taken from fewer than 100 sentences."""


def without_redefined(result: Mapping[str, Any]) -> dict[str, Any]:
    """Leave ``REDEFINED`` out of the fields of a result that was made before timings in turn."""
    is_current = "timed_together" in result
    return {name: value for name, value in result.items() if is_current or name not in REDEFINED}


def current_preset(name: str, *, is_old_tiny: bool = False) -> str:
    """Return the current name of a preset.

    Args:
        name: name of the preset, as written.
        is_old_tiny: whether "transformer-tiny", if that is the name, was written when it named another model,
            with norms after the residual sum.
    """
    if is_old_tiny and name == "transformer-tiny":
        return "transformer-postnorm-2x128"
    return RENAMED["preset"].get(name, name)


def current_config(table: Mapping[str, Any], path: object) -> dict[str, Any]:
    """Replace old names in the tables of a config file, and take its schema version out.

    Args:
        table: the parsed TOML file.
        path: the file that error messages name.

    Raises:
        ValueError: the file was written by a later version of attnbench.
    """
    schema = table.get("schema", 1)
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise ValueError(
            f"{path}: schema must be a whole number from 1 to {SCHEMA}, found {schema!r}: "
            "a later number needs a later version of attnbench"
        )
    current = {key: _current_section(key, value) for key, value in table.items() if key != "schema"}
    if _is_without_train_size(table):
        del current["data"]["train_size"]
    return current


def _is_without_train_size(table: Mapping[str, Any]) -> bool:
    """Return whether ``data.train_size`` of a config file had no effect when the file was written.

    So it was for a corpus from a folder. An experiment.toml of a published folder has no schema either, but
    lists every setting, this one with its default.
    """
    data = table.get("data")
    if not isinstance(data, Mapping) or not data.get("root") or "train_size" not in data:
        return False
    if "schema" in table:
        return bool(table["schema"] < 4)
    return data["train_size"] == 20_000 and data.keys() >= {"max_tokens", "max_test", "seed"}


def _current_section(name: str, section: Any) -> Any:
    """Replace old keys of one section, or of each ``[[models]]`` table."""
    if isinstance(section, list):
        return [_current_section(name, item) for item in section]
    if not isinstance(section, Mapping):
        return section  # refused later, by the check of its type
    keys = current_names("config", {f"{name}.{key}": value for key, value in section.items()})
    current = {key.removeprefix(f"{name}."): value for key, value in keys.items()}
    preset = current.get("preset")
    if not isinstance(preset, str):
        return current
    # A run folder lists all settings, which tell which model it has, and has ``norm_kind`` or ``pre_norm`` if
    # it is of today. A file written by hand means today's, also with a norm of its own.
    if preset in ("min-gru", "min-lstm") and "feed_summary" in current:
        current = {"pre_norm": False} | current
    is_old = "d_model" in current and "norm_kind" not in current
    renamed = current_preset(preset, is_old_tiny=is_old and current.get("norm") == "post")
    if renamed == preset:
        return current
    # A label that is left out is the preset's name as written, which the run's folder has.
    return {"label": preset} | current | {"preset": renamed}


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
