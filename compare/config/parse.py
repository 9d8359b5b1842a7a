"""Read and write experiments as TOML files; apply ``--set`` and grids of settings."""

import dataclasses
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeVar, get_origin

from compare.config import find_experiment
from compare.config.sections import SECTIONS, Experiment, ModelConfig, SystemConfig
from compare.models.presets import PRESETS
from compare.settings import convert_setting
from compare.system.messages import abbreviate, did_you_mean
from compare.system.plugins import load_plugins
from data.text import describe_start

Section = TypeVar("Section")

SCHEMA = 5
"""Version of the files in a run folder."""
NOT_IN_LABELS = r"[^\w.+-]"
MAX_LABEL_BYTES = 200
"""File names have at most 255 bytes; trials, seeds and temporary files add to the label."""
BARE_KEY = re.compile("[A-Za-z0-9_-]+")
"""A TOML key that needs no quotes; names of test sets may contain dots."""


def load_experiment(
    path: str | Path, overrides: Iterable[str] = (), *, base: Path | None = None
) -> Experiment:
    """Read an experiment from a TOML file.

    Relative paths in the file are resolved against its folder, so that a corpus and its experiment can be
    moved together. Relative paths in ``overrides`` stay relative to the working directory.

    Args:
        path: the file, such as configs/demo.toml, or the name of a shipped experiment, such as demo.
        overrides: settings that replace those of the file: ``section.key=value``, ``models.LABEL.key=value``
            or, for all models, ``models.*.key=value``.
        base: folder that relative paths are resolved against; by default that of the file.

    Returns:
        The checked experiment, for ``run_experiment``.

    Raises:
        OSError: the file cannot be read.
        ValueError: a key is unknown, a value has the wrong type or is out of range, or a plug-in cannot be
            imported.
    """
    path = find_experiment(path)
    table = read_toml(path)
    if (schema := table.pop("schema", SCHEMA)) != SCHEMA:  # files written by hand have no schema
        raise ValueError(
            f"{path}: its schema is {schema!r}, but this version of attnbench reads schema {SCHEMA}: use the "
            "version that wrote it, or run the experiment again"
        )
    base = path.parent if base is None else base
    for section, key in (("data", "root"), ("train", "init_from")):
        values = table.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str):
            values[key] = absolute_root(values[key], base)
    try:
        for override in overrides:
            _apply_override(table, override)
        return _build_experiment(path.stem, table, base)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raise ValueError if it is not TOML."""
    content = path.read_bytes()
    if what := describe_start(content, allow_markup=True):
        raise ValueError(f"{path} is {what}")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # Notepad writes a byte order mark
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        byte = content[error.start]
        raise ValueError(f"{path}, line {line}: 0x{byte:02x} is not UTF-8: save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:  # invalid TOML, or ten thousand brackets
        hint = "put text in quotes, and write / instead of \\ in paths"
        if re.search("twice|overwrite", str(error)):
            hint = "write each key and each [table] once; [[models]] may be repeated"
        raise ValueError(f"{path}: not TOML: {error}; {hint}") from None


def absolute_root(root: str, base: Path) -> str:
    """Resolve a relative path against ``base``; "" (the built-in corpus) and ~ stay as they are."""
    if not root or root.startswith("~") or Path(root).is_absolute():
        return root
    return os.path.abspath(base / root)


def _build_experiment(name: str, table: Mapping[str, Any], base: Path) -> Experiment:
    """Build an experiment from its tables, and import the plug-ins that it names."""
    keys = [*SECTIONS, "models", "systems", "seeds", "plugins"]
    for key in table:
        if key not in keys:
            raise ValueError(f"unknown key {abbreviate(key)}; {did_you_mean(key, keys, cutoff=0.5)}")
    plugins = table.get("plugins", [])
    plugins = plugins if isinstance(plugins, list) else [plugins]
    load_plugins(plugins)
    sections: dict[str, Any] = {key: _build_section(key, kind, table) for key, kind in SECTIONS.items()}
    models = table.get("models", [])
    if not isinstance(models, list) or not models or not all(isinstance(row, dict) for row in models):
        problem = "[models] has single brackets: write" if isinstance(models, dict) else "no"
        raise ValueError(f"{problem} [[models]], one table per model with a line such as preset = 'bahdanau'")
    rows = tuple(
        _build_model(row, f"models[{index}]")
        for index, model in enumerate(models)
        for row in expand_grid(model)
    )
    tables = table.get("systems", [])
    if not isinstance(tables, list) or not all(isinstance(row, dict) for row in tables):
        raise ValueError("systems must be tables: write [[systems]], one per external system")
    systems = tuple(_build_system(row, f"systems[{index}]", base) for index, row in enumerate(tables))
    _check_labels([row.label for row in rows] + [system.label for system in systems])
    return Experiment(
        name=name,
        models=rows,
        systems=systems,
        seeds=table.get("seeds", ()),
        plugins=tuple(dict.fromkeys(plugins)),
        **sections,
    )


def _check_labels(labels: Sequence[str]) -> None:
    for label in labels:
        is_name = all(c.isalnum() or c in "-_.+" for c in label) and label[:1] not in ("", ".")
        if not is_name or len(label.encode()) > MAX_LABEL_BYTES:
            raise ValueError(
                f"label {abbreviate(label)} names a folder: it may have only letters, digits and -_.+, "
                f"and at most {MAX_LABEL_BYTES} bytes"
            )
    for label, count in Counter(map(str.casefold, labels)).items():  # some systems ignore case
        if count > 1:
            raise ValueError(f"label {label!r} is given twice: each model needs a different label")


def _build_section(name: str, kind: type[Section], tables: Mapping[str, Any]) -> Section:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} must be a table, found {abbreviate(table)}")
    keys = [f"{name}.{field.name}" for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if (full_key := f"{name}.{key}") not in keys:
            hint = did_you_mean(full_key, keys, cutoff=0.75)
            if any(key in preset.model.setting_types() for preset in PRESETS.values()):
                hint = f"it is a setting of each model: use [[models]], or --set 'models.*.{key}=VALUE'"
            raise ValueError(f"unknown key {abbreviate(full_key)}; {hint}")
    try:
        return kind(**table)
    except ValueError as error:
        raise ValueError(f"[{name}] {error}") from None


def _build_model(row: Mapping[str, Any], context: str) -> ModelConfig:
    preset = row.get("preset")
    if not isinstance(preset, str):
        raise ValueError(
            f"{context}: no preset: write preset = 'bahdanau', or one that `attnbench models` lists"
        )
    label = convert_setting(row.get("label", preset), str, f"{context}.label")
    if label != preset and label in PRESETS:  # tables show labels
        raise ValueError(
            f"{context}: label {label!r} is the name of a preset other than {preset!r}: choose another label"
        )
    overrides = {key: value for key, value in row.items() if key not in ("preset", "label")}
    return ModelConfig(preset=preset, label=label, overrides=overrides)


def _build_system(row: Mapping[str, Any], context: str, base: Path) -> SystemConfig:
    label, *files = (
        convert_setting(row.get(key), str, f"{context}.{key}") for key in dict.fromkeys(["label", *row])
    )
    if label in PRESETS:
        raise ValueError(f"{context}: label {label!r} is the name of a preset: choose another label")
    tests = [key for key in row if key != "label"]
    paths = {test: absolute_root(file, base) for test, file in zip(tests, files, strict=True)}
    return SystemConfig(label=label, files=paths)


# Overrides from the command line, and grids of models.


LENGTHS = {"max_updates": "budgets", "budgets": "max_updates"}
"""Two settings of [train] that exclude each other."""


def _apply_override(table: dict[str, Any], override: str) -> None:
    """Write a setting from the command line into the tables of an experiment, which are checked later."""
    key, equals, text = override.strip("'").partition("=")  # cmd.exe passes these quotes on
    section, _, name = (part.strip() for part in key.partition("."))
    label, _, setting = name.rpartition(".")  # a label may have dots
    if not equals or not name or (section == "models" and not (label and setting)):
        raise ValueError(
            f"--set {override}: must look like section.key=value (train.max_updates=500) "
            "or models.LABEL.key=value"
        )
    rows = table.get("models", [])
    models = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if section not in SECTIONS and section in [row.get("label", row.get("preset")) for row in models]:
        raise ValueError(f"--set {override}: {section} is a model: write --set models.{key.strip()}={text}")
    if section != "models":
        changed, setting = [table.setdefault(section, {})], name
    else:
        for row in models:
            row.setdefault("label", row.get("preset"))  # the model keeps its name if its preset changes
        changed = [row for row in models if label in (row["label"], "*")]
        if models and not changed:  # a label that a grid makes
            table["models"] = models = [dict(row) for model in models for row in expand_grid(model)]
            changed = [row for row in models if label == row["label"]]
        if models and not changed:
            near = did_you_mean(label, [str(row["label"]) for row in models])
            raise ValueError(f"--set {override}: no model is labelled {abbreviate(label)}; {near}")
    for values in changed:
        if isinstance(values, dict):  # a section that is not a table is refused later
            values[setting] = parse_value(text)
            if section == "train" and setting in LENGTHS:
                values.pop(LENGTHS[setting], None)
            if (section, setting, values[setting]) == ("budget", "match", "none"):
                values.pop("reference", None)
                values.pop("amount", None)


def parse_value(text: str) -> Any:
    """Read the value of an option as TOML, or else as a bare string, or a list of them: "[lstm, gru]"."""
    text = text.strip()
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        is_list = text.startswith("[") and text.endswith("]")
        return [parse_value(part) for part in text[1:-1].split(",")] if is_list else text


def expand_grid(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield one ``[[models]]`` table per combination of listed values.

    ``dropout = [0.1, 0.2]`` of the label "lstm" gives the labels "lstm-dropout-0.1" and "lstm-dropout-0.2". A
    setting that takes a list itself makes no grid.
    """
    preset = PRESETS.get(str(row.get("preset")))
    kinds = preset.model.setting_types() if preset else {}
    axes = {
        key: values
        for key, values in row.items()
        if isinstance(values, list) and values and key in kinds and get_origin(kinds[key]) is not tuple
    }
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        parts = "".join(
            f"-{key}-{str(value).lower() if isinstance(value, bool) else value}"
            for key, value in chosen.items()
        )
        label = f"{row.get('label', row.get('preset'))}{re.sub(NOT_IN_LABELS, '_', parts)}"
        yield {**row, **chosen, "label": label} if axes else row


def to_toml(
    sections: Mapping[str, Any],
    models: Iterable[Mapping[str, Any]],
    plugins: Sequence[str] = (),
    systems: Iterable[Mapping[str, Any]] = (),
) -> str:
    """Write an experiment as TOML; settings that are None are left out.

    Args:
        sections: dicts or dataclasses of settings, by name.
        models: ``[[models]]`` tables.
        plugins: names of modules.
        systems: ``[[systems]]`` tables.
    """
    tables: list[tuple[str, Mapping[str, Any]]] = [("", {"plugins": list(plugins)})] if plugins else []
    for name, section in sections.items():
        tables.append((f"[{name}]\n", section if isinstance(section, dict) else vars(section)))
    tables += [("[[models]]\n", table) for table in models]
    tables += [("[[systems]]\n", table) for table in systems]
    texts = []
    for header, values in tables:
        lines = [
            f"{key if BARE_KEY.fullmatch(key) else json.dumps(key)} = "
            f"{json.dumps(value, ensure_ascii=False)}\n"
            for key, value in values.items()
            if value is not None
        ]
        texts.append(header + "".join(lines))
    # JSON writes values as TOML does, except for DEL, which TOML wants escaped.
    return "\n".join(texts).replace("\x7f", "\\u007f")
