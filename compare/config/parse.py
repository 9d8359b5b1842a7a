"""Read experiments from TOML files, with overrides ``section.key=value``; unknown keys are errors."""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypeVar, get_origin

from compare.config.plugins import load_plugins, read_plugins
from compare.config.sections import SECTIONS, Experiment, ModelConfig
from compare.config.toml import check_schema, find_experiment, parse_value, read_toml
from compare.optim import OptimConfig
from compare.system.messages import abbreviate, did_you_mean
from compare.system.settings import convert_setting, describe_setting

# Overrides of an experiment's tables from the command line: ``section.key`` and ``models.LABEL.key``.


SHAPES = "section.key=value, such as train.max_updates=500, or models.LABEL.key=value"
ALL_MODELS = "*"
"""Stands for the label of every model."""
OTHER_NAMES = {
    "lr": "learning_rate",
    "warmup": "warmup_updates",
    "warmup_steps": "warmup_updates",
    "lr_scheduler": "schedule",
    "hidden": "hidden_size",
}
"""Names that other toolkits have for settings of a model."""


def apply_override(
    table: dict[str, Any], override: str, *, sections: Mapping[str, type], context: str
) -> None:
    """Apply one override to the tables of an experiment.

    Args:
        table: sections and ``models``, as in the file; changed.
        override: ``section.key=value``, ``models.LABEL.key=value`` or ``models.*.key=value``.
        sections: dataclass of each section.
        context: the file.

    Raises:
        ValueError: an override of another shape, or a section, label or key that is not there; the message
            has the override, and the nearest name.
    """
    key, equals, text = override.partition("=")
    section, dot, name = (part.strip() for part in key.partition("."))
    said = f"{context}: --set {override}"
    if not equals or not dot or not name:
        raise ValueError(f"{said}: must look like {SHAPES}")
    if section == "models":
        label, dot, setting = name.rpartition(".")  # a label may have dots
        if not dot or not label or not setting:
            raise ValueError(f"{said}: must look like {SHAPES}")
        rows = _models_labelled(label, table, said)
        _ensure_overridable(rows, setting, sections, said)
        for row in rows:
            row.setdefault("label", row.get("preset"))  # the model keeps its name if its preset changes
            row[setting] = parse_value(text)
        return
    if section not in sections:
        raise ValueError(
            f"{said}: unknown key {abbreviate(section)}; {did_you_mean(section, [*sections, 'models'])}"
        )
    known = [field.name for field in dataclasses.fields(sections[section])]
    if name not in known:
        raise ValueError(f"{said}: {describe_unknown_key(section, name, known)}")
    if isinstance(table.setdefault(section, {}), dict):  # a section that is no table is refused later
        table[section][name] = parse_value(text)


def describe_unknown_key(section: str, name: str, known: Iterable[str]) -> str:
    """Describe a key that ``section`` lacks: the nearest one, or that it is a setting of each model.

    Args:
        section: name of the section.
        name: the key.
        known: keys of the section.
    """
    from compare.models.presets import PRESETS  # imports torch, which only this message needs

    setting = OTHER_NAMES.get(name, name)
    text = f"unknown key {abbreviate(f'{section}.{name}')}"
    if any(setting in preset.model.setting_types() for preset in PRESETS.values()):
        return (
            f"{text}; {setting} is a setting of each model: write it into [[models]], or "
            f"--set 'models.*.{setting}=VALUE'"
        )
    return f"{text}; {did_you_mean(f'{section}.{name}', [f'{section}.{key}' for key in known], cutoff=0.5)}"


def suggest_setting(key: str, known: Iterable[str]) -> str:
    """Suggest the setting of a model that is nearest to ``key``, or list all of them if none is near."""
    names = list(known)
    meant = OTHER_NAMES.get(key)
    return f"did you mean {meant!r}?" if meant in names else did_you_mean(key, names, cutoff=0.5)


def _models_labelled(label: str, table: Mapping[str, Any], said: str) -> list[dict[str, Any]]:
    """Return the ``[[models]]`` tables with a label, or all of them for ``ALL_MODELS``."""
    rows = table.get("models")
    models = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    labels = [str(row.get("label", row.get("preset"))) for row in models]
    chosen = [row for row, own in zip(models, labels, strict=True) if label in (own, ALL_MODELS)]
    if models and not chosen:
        raise ValueError(f"{said}: no model is labelled {abbreviate(label)}; {did_you_mean(label, labels)}")
    return chosen  # that there is no model at all is said later


def _ensure_overridable(
    rows: Iterable[Mapping[str, Any]], key: str, sections: Mapping[str, type], said: str
) -> None:
    """Refuse a key that a model lacks; an unknown preset is refused later."""
    from compare.models.presets import PRESETS  # imports torch, which other overrides do not need

    if key == "label":
        raise ValueError(f"{said}: a label names its model: change it in the file")
    for row in rows:
        preset = row.get("preset")
        if key == "preset" or not isinstance(preset, str) or preset not in PRESETS:
            continue
        known = PRESETS[preset].model.setting_types()
        if key not in known:
            text = f"{said}: {row.get('label', preset)} has no setting {abbreviate(key)}"
            for section, kind in sections.items():
                if any(field.name == key for field in dataclasses.fields(kind)):
                    raise ValueError(f"{text}; all models share it: --set {section}.{key}=VALUE")
            raise ValueError(f"{text}; {suggest_setting(key, known)}")


# Grids: a ``[[models]]`` table with a list for a setting that takes one value stands for several models.


MAX_MODELS = 1_000
"""Models that one table can stand for."""


def expand_grid(row: Mapping[str, Any], context: str) -> Iterator[Mapping[str, Any]]:
    """Yield one ``[[models]]`` table per combination of the values that are listed in ``row``.

    A label gets every listed setting and its value: ``dropout = [0.1, 0.2]`` of the label "lstm" gives
    "lstm-dropout-0.1" and "lstm-dropout-0.2". Without lists, the table itself is yielded. Settings that the
    preset lacks, and presets that do not exist, are left to the checks that follow.

    Args:
        row: the table.
        context: what error messages begin with.

    Raises:
        ValueError: a list without values, or too many combinations.
    """
    lists = {key: value for key, value in row.items() if isinstance(value, list)}
    axes = {key: values for key, values in lists.items() if _takes_one_value(row, key)} if lists else {}
    if not axes:
        yield row
        return
    for key, values in axes.items():
        if not values:
            raise ValueError(f"{context}: {key} = []: a list of values, one model for each, has at least one")
    if (count := prod(map(len, axes.values()))) > MAX_MODELS:
        raise ValueError(
            f"{context}: the lists of {', '.join(axes)} make {count:,} models; at most {MAX_MODELS:,} are "
            "allowed: shorten them"
        )
    label = row.get("label", row.get("preset"))
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        parts = "".join(f"-{key}-{_in_label(value)}" for key, value in chosen.items())
        yield {**row, **chosen, "label": f"{label}{parts}"}


def is_of_grid(label: str, table: str, settings: Iterable[str]) -> bool:
    """Return whether ``expand_grid`` may have made a model's label of a table's.

    Args:
        label: label of the model.
        table: label of the table.
        settings: names of the model's settings.
    """
    return re.fullmatch(rf"{re.escape(table)}-({'|'.join(settings)})-.+", label) is not None


def _takes_one_value(row: Mapping[str, Any], key: str) -> bool:
    """Return whether ``key`` is a setting of the table's preset that is not itself a list."""
    from compare.models.presets import PRESETS  # imports torch, which a file without lists does not need

    preset = row.get("preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        return False
    kind = PRESETS[preset].model.setting_types().get(key)
    return kind is not None and get_origin(kind) is not tuple


def _in_label(value: Any) -> str:
    """Return a value as part of a label, which names a folder."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.+-]", "_", abbreviate(text).strip("'\"") if len(text) > 40 else text)


Section = TypeVar("Section")


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
    table = check_schema(read_toml(path), path)
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
        values[key] = convert_setting(value, fields[key].type, f"{context}: {prefix}.{key}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{context}: [{prefix}] {error}") from None


def unknown_key(context: str, key: str, known: Iterable[str]) -> ValueError:
    """Make the error for an unknown key, with the nearest known one."""
    return ValueError(f"{context}: unknown key {abbreviate(key)}; {did_you_mean(key, known, cutoff=0.5)}")


def _model_row(row: Mapping[str, Any], context: str) -> ModelConfig:
    preset = row.get("preset")
    if not isinstance(preset, str):
        raise ValueError(f"{context}: no preset: write preset = 'bahdanau' or another of `attnbench models`")
    label = convert_setting(row.get("label", preset), str, f"{context}.label")
    overrides = {key: value for key, value in row.items() if key not in ("preset", "label")}
    try:
        return ModelConfig(preset=preset, label=label, overrides=overrides)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None


# Documentation of the settings of an experiment file.


OPTIMIZER = "[models]"
"""Heading of the settings of the optimizer, which stand in ``[[models]]`` tables."""


def describe_settings() -> dict[str, list[dict[str, str]]]:
    """Describe each shared setting, and those of the optimizer, which every model has.

    Returns:
        By section, per setting its name, its default as TOML (empty: there is none, or a model's preset has
        its own) and a description.
    """
    described = {
        section: [describe_setting(each) for each in fields(kind)] for section, kind in SECTIONS.items()
    }
    optimizer = [describe_setting(each) | {"default": ""} for each in fields(OptimConfig)]
    return {**described, OPTIMIZER: optimizer}
