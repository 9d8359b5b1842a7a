"""Read an experiment from TOML, overridden by ``section.key=value``; whatever is unknown is an error."""

import dataclasses
import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from compare.config.sections import (
    BenchConfig,
    BudgetConfig,
    DataConfig,
    DecodeConfig,
    Experiment,
    ModelConfig,
    TrainConfig,
    VocabularyConfig,
)
from compare.system.hints import abbreviate, did_you_mean

Section = TypeVar("Section")

SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
    "bench": BenchConfig,
    "budget": BudgetConfig,
}
MAX_BYTES = 1_000_000
"""The largest file that is read: a thousand models take no more."""


def load_experiment(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment from TOML and apply ``section.key=value`` overrides.

    Raises:
        ValueError: an unknown key (with the nearest one), a value of the wrong type or out of range.
    """
    table = read_toml(path)
    for override in overrides:
        _apply(table, override)
    return experiment_from(table, name=path.stem, place=str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ValueError: it is larger than any experiment, not TOML, or nested deeper than Python reads.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: over {MAX_BYTES:,} bytes: no experiment, which is a page of TOML")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError(f"{path}: not TOML: nested too deeply") from None
    except ValueError as error:  # of TOML, of UTF-8, or of a number with thousands of digits
        raise ValueError(f"{path}: not TOML: {error}") from None


def experiment_from(table: Mapping[str, Any], *, name: str, place: str) -> Experiment:
    """Build an experiment from nested tables; ``place`` begins each error message."""
    for key in table:
        if key not in SECTIONS and key != "models":
            raise unknown_key(place, key, [*SECTIONS, "models"])
    sections: dict[str, Any] = {
        key: build_section(kind, table.get(key, {}), place, key) for key, kind in SECTIONS.items()
    }
    models = table.get("models", [])
    if not isinstance(models, list) or not models or not all(isinstance(row, dict) for row in models):
        raise ValueError(f"{place}: no [[models]] table: name at least one, such as preset = 'bahdanau'")
    rows = tuple(_model_row(row, f"{place}: models[{index}]") for index, row in enumerate(models))
    for label, count in Counter(row.label for row in rows).items():
        if count > 1:
            raise ValueError(f"{place}: label {label!r} is given twice: each row needs a label of its own")
    return Experiment(name=name, models=rows, **sections)


def build_section(kind: type[Section], table: Any, place: str, prefix: str) -> Section:
    """Build the dataclass ``kind`` from ``table``; unknown keys and wrong types are errors."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{place}: {prefix} must be a table, found {abbreviate(table)}")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise unknown_key(place, f"{prefix}.{key}", [f"{prefix}.{name}" for name in fields])
        values[key] = check_type(value, fields[key].type, f"{place}: {prefix}.{key}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{place}: [{prefix}] {error}") from None


def check_type(value: Any, kind: Any, place: str) -> Any:
    """Return ``value`` if it is of ``kind``; an int serves as a float, a bool never as an int.

    A ``Literal`` is left to the section that declares it, which knows what its values mean.
    """
    kinds = [part for part in get_args(kind) or (kind,) if part in (int, float, str, bool)]
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{place} must be a number of 64 bits, found {abbreviate(value)}")
    if float in kinds and type(value) is int:
        return float(value)
    if kinds and type(value) not in kinds:
        raise ValueError(
            f"{place} must be {' or '.join(k.__name__ for k in kinds)}, found {abbreviate(value)}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} must be a finite number, found {value!r}")
    return value


def unknown_key(place: str, key: str, known: Iterable[str]) -> ValueError:
    """The error for a key that does not exist, with the nearest one that does."""
    return ValueError(f"{place}: unknown key {abbreviate(key)}; {did_you_mean(key, known, cutoff=0.5)}")


def to_toml(experiment: Experiment) -> str:
    """The experiment as TOML that ``load_experiment`` reads back, every value written out."""
    lines: list[str] = []
    for name in SECTIONS:
        lines += [f"[{name}]", *toml_assignments(dataclasses.asdict(getattr(experiment, name))), ""]
    for row in experiment.models:
        lines += [
            "[[models]]",
            *toml_assignments({"preset": row.preset, "label": row.label, **row.overrides}),
            "",
        ]
    return "\n".join(lines)


def toml_assignments(values: Mapping[str, Any]) -> list[str]:
    """Write lines ``key = value``, without those that are None.

    JSON writes numbers, strings and bools as TOML does, if it leaves out surrogates and escapes DEL.
    """
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items() if value is not None}
    return [f"{key} = {text}".replace("\x7f", "\\u007f") for key, text in texts.items()]


def _model_row(row: Mapping[str, Any], place: str) -> ModelConfig:
    preset = row.get("preset")
    if not isinstance(preset, str):
        raise ValueError(f"{place}: no preset: write preset = 'bahdanau' or another of `attnbench models`")
    label = check_type(row.get("label", preset), str, f"{place}.label")
    overrides = {key: value for key, value in row.items() if key not in ("preset", "label")}
    try:
        return ModelConfig(preset=preset, label=label, overrides=overrides)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _apply(table: dict[str, Any], override: str) -> None:
    """Set one ``section.key=value``; the value is TOML, or else a bare string."""
    key, equals, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise ValueError(f"--set {override}: must look like section.key=value, such as train.max_updates=500")
    if section not in SECTIONS:
        raise unknown_key(f"--set {override}", section, SECTIONS)
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    known = [f.name for f in dataclasses.fields(SECTIONS[section])]
    if name not in known:
        raise unknown_key(f"--set {override}", f"{section}.{name}", [f"{section}.{k}" for k in known])
    if isinstance(table.setdefault(section, {}), dict):  # what is no table is refused with the file
        table[section][name] = value
