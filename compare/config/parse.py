"""Read experiments from TOML files, with overrides ``section.key=value``; unknown keys are errors."""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from compare.config.model_grid import expand_grid
from compare.config.overrides import apply_override, describe_unknown_key
from compare.config.plugins import load_plugins, read_plugins
from compare.config.schema import current_config
from compare.config.sections import (
    BenchConfig,
    BudgetConfig,
    DataConfig,
    DecodeConfig,
    Experiment,
    ModelConfig,
    VocabularyConfig,
)
from compare.config.shipped import find_experiment
from compare.config.toml_text import read_toml
from compare.config.training_sections import RegularizationConfig, TrainConfig
from compare.system.hints import abbreviate, did_you_mean

Section = TypeVar("Section")

SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "train": TrainConfig,
    "regularization": RegularizationConfig,
    "decode": DecodeConfig,
    "bench": BenchConfig,
    "budget": BudgetConfig,
}


def load_experiment(
    path: str | Path, overrides: Iterable[str] = (), *, base: Path | None = None
) -> Experiment:
    """Read an experiment from a TOML file.

    A relative ``data.root`` or ``train.init_from`` in the file is resolved against the folder of the file, so
    that a corpus and its experiment can be moved together. One in ``overrides`` remains relative to the
    working directory.

    Args:
        path: the file, such as configs/demo.toml, or the name of a shipped experiment, such as demo.
        overrides: settings that replace those of the file: ``section.key=value``, ``models.LABEL.key=value``
            or, for all models, ``models.*.key=value``.
        base: another folder than that of the file to resolve a relative ``data.root`` against.

    Returns:
        The experiment, checked; ``resolve_models`` and ``run_experiment`` take it.

    Raises:
        OSError: the file cannot be read.
        ValueError: an unknown key (with the nearest one), a value of the wrong type or out of range, or a
            plug-in that cannot be imported.
    """
    path = find_experiment(path)
    table = current_config(read_toml(path), path)
    for section, key in (("data", "root"), ("train", "init_from")):
        values = table.get(section)
        if isinstance(values, dict) and isinstance(given := values.get(key), str):
            values[key] = absolute_root(given, path.parent if base is None else base)
    for override in overrides:
        apply_override(table, override, sections=SECTIONS, context=str(path))
    return experiment_from(table, name=path.stem, context=str(path))


def absolute_root(root: str, base: Path) -> str:
    """Resolve a relative ``data.root`` against ``base``; "" (the built-in corpus) and ~ stay as they are."""
    if not root or root.startswith("~") or Path(root).is_absolute():
        return root
    return os.path.abspath(base / root)


def experiment_from(table: Mapping[str, Any], *, name: str, context: str) -> Experiment:
    """Build an experiment from nested tables, and import the plug-ins that it names.

    Args:
        table: sections, ``models`` and ``plugins``, as in the file.
        name: the name of the experiment.
        context: what error messages begin with.

    Raises:
        ValueError: as ``load_experiment``.
    """
    for key in table:
        if key not in SECTIONS and key not in ("models", "plugins"):
            raise unknown_key(context, key, [*SECTIONS, "models", "plugins"])
    plugins = read_plugins(table.get("plugins", []), context)
    load_plugins(plugins, context)
    sections: dict[str, Any] = {
        key: build_section(kind, table.get(key, {}), context, key) for key, kind in SECTIONS.items()
    }
    models = table.get("models", [])
    if not isinstance(models, list) or not models or not all(isinstance(row, dict) for row in models):
        raise ValueError(f"{context}: no [[models]] table: name at least one, such as preset = 'bahdanau'")
    rows = tuple(
        _model_row(row, f"{context}: models[{index}]")
        for index, written in enumerate(models)
        for row in expand_grid(written, f"{context}: models[{index}]")
    )
    for label, count in Counter(row.label for row in rows).items():
        if count > 1:
            raise ValueError(f"{context}: label {label!r} is given twice: each model needs a different label")
    try:
        return Experiment(name=name, models=rows, plugins=plugins, **sections)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None


def build_section(kind: type[Section], table: Any, context: str, prefix: str) -> Section:
    """Build the dataclass ``kind`` from ``table``.

    Raises:
        ValueError: an unknown key, or a value of the wrong type or out of range.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{context}: {prefix} must be a table, found {abbreviate(table)}")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise ValueError(f"{context}: {describe_unknown_key(prefix, key, fields)}")
        values[key] = check_type(value, fields[key].type, f"{context}: {prefix}.{key}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{context}: [{prefix}] {error}") from None


def check_type(value: Any, kind: Any, context: str) -> Any:
    """Return ``value`` if it is of type ``kind``; an int is accepted as a float, a bool not as an int.

    For a tuple, a list is accepted, or a single value, which is a list of one. A ``Literal`` is checked by
    the section that declares it, whose message names the choices.

    Raises:
        ValueError: a value of another type, not finite, or beyond 64 bits.
    """
    if get_origin(kind) is tuple:
        values = value if isinstance(value, list) else [value]
        return tuple(check_type(item, get_args(kind)[0], context) for item in values)
    kinds = [part for part in get_args(kind) or (kind,) if part in (int, float, str, bool)]
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{context} must be a number of 64 bits, found {abbreviate(value)}")
    if float in kinds and type(value) is int:
        return float(value)
    if kinds and type(value) not in kinds:
        raise ValueError(
            f"{context} must be {' or '.join(k.__name__ for k in kinds)}, found {abbreviate(value)}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{context} must be a finite number, found {value!r}")
    return value


def unknown_key(context: str, key: str, known: Iterable[str]) -> ValueError:
    """Make the error for an unknown key, with the nearest known one."""
    return ValueError(f"{context}: unknown key {abbreviate(key)}; {did_you_mean(key, known, cutoff=0.5)}")


def _model_row(row: Mapping[str, Any], context: str) -> ModelConfig:
    preset = row.get("preset")
    if not isinstance(preset, str):
        raise ValueError(f"{context}: no preset: write preset = 'bahdanau' or another of `attnbench models`")
    label = check_type(row.get("label", preset), str, f"{context}.label")
    overrides = {key: value for key, value in row.items() if key not in ("preset", "label")}
    try:
        return ModelConfig(preset=preset, label=label, overrides=overrides)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None
