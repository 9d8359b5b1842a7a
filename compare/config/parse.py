"""Experiments as TOML files: read with overrides and grids, and written."""

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

Section = TypeVar("Section")

SCHEMA = 5
"""Version of the files in a run folder."""
ALL_MODELS = "*"
"""Stands for the label of every model in an override."""
NOT_IN_LABELS = r"[^\w.+-]"


def load_experiment(
    path: str | Path, overrides: Iterable[str] = (), *, base: Path | None = None
) -> Experiment:
    """Read an experiment from a TOML file.

    A relative ``data.root``, ``train.init_from`` or file of ``[[systems]]`` is resolved against the folder of
    the file, so that a corpus and its experiment can be moved together. One in ``overrides`` remains relative
    to the working directory.

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
    table = read_toml(path)
    if (schema := table.pop("schema", SCHEMA)) != SCHEMA:  # without one it was written by hand
        raise ValueError(
            f"{path}: its schema is {schema!r}, but this version of attnbench reads schema {SCHEMA}: use the "
            "version that wrote it, or run the experiment again"
        )
    base = path.parent if base is None else base
    for section, key in (("data", "root"), ("train", "init_from")):
        values = table.get(section)
        if isinstance(values, dict) and isinstance(given := values.get(key), str):
            values[key] = absolute_root(given, base)
    try:
        for override in overrides:
            _apply_override(table, override)
        return _build_experiment(path.stem, table, base)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file.

    Raises:
        ValueError: the file is not TOML.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))  # Notepad writes a byte order mark
    except ValueError as error:  # invalid TOML or UTF-8
        hint = 'text stands in quotes, and a path in "..." has / instead of \\'
        raise ValueError(f"{path}: not TOML: {error}; {hint}") from None


def absolute_root(root: str, base: Path) -> str:
    """Resolve a relative ``data.root`` against ``base``; "" (the built-in corpus) and ~ stay as they are."""
    if not root or root.startswith("~") or Path(root).is_absolute():
        return root
    return os.path.abspath(base / root)


MAX_LABEL_BYTES = 200
"""A file system takes 255, of which the names of trials, seeds and temporary files need some."""


def _build_experiment(name: str, table: Mapping[str, Any], base: Path) -> Experiment:
    """Build an experiment from its tables, and import the plug-ins that it names."""
    known = [*SECTIONS, "models", "systems", "seeds", "plugins"]
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {abbreviate(key)}; {did_you_mean(key, known, cutoff=0.5)}")
    plugins = table.get("plugins", [])
    plugins = plugins if isinstance(plugins, list) else [plugins]
    load_plugins(plugins)
    sections: dict[str, Any] = {key: _build_section(key, kind, table) for key, kind in SECTIONS.items()}
    models = table.get("models", [])
    if not isinstance(models, list) or not models or not all(isinstance(row, dict) for row in models):
        found = "[models] has single brackets: write" if isinstance(models, dict) else "no"
        raise ValueError(f"{found} [[models]], one per model, such as preset = 'bahdanau'")
    rows = tuple(
        _build_model(row, f"models[{index}]")
        for index, written in enumerate(models)
        for row in expand_grid(written)
    )
    written = table.get("systems", [])
    if not isinstance(written, list) or not all(isinstance(row, dict) for row in written):
        raise ValueError("systems must be tables: write [[systems]], one per external system")
    systems = tuple(_build_system(row, f"systems[{index}]", base) for index, row in enumerate(written))
    labels = [row.label for row in rows] + [row.label for row in systems]
    for label in labels:
        is_name = all(c.isalnum() or c in "-_.+" for c in label) and label[:1] not in ("", ".")
        if not is_name or len(label.encode()) > MAX_LABEL_BYTES:
            raise ValueError(
                f"label {abbreviate(label)} names a folder: only letters, digits and -_.+ are allowed, "
                f"at most {MAX_LABEL_BYTES} bytes"
            )
    for label, count in Counter(map(str.casefold, labels)).items():  # one folder on some systems
        if count > 1:
            raise ValueError(f"label {label!r} is given twice: each model needs a different label")
    more: dict[str, Any] = {"seeds": table.get("seeds", ()), "plugins": tuple(dict.fromkeys(plugins))}
    return Experiment(name=name, models=rows, systems=systems, **more, **sections)


def _build_section(name: str, kind: type[Section], tables: Mapping[str, Any]) -> Section:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} must be a table, found {abbreviate(table)}")
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {abbreviate(f'{name}.{key}')}; {_suggest(name, key, known)}")
    try:
        return kind(**table)
    except ValueError as error:
        raise ValueError(f"[{name}] {error}") from None


def _suggest(section: str, key: str, known: Iterable[str]) -> str:
    """Suggest the nearest key of a section, or say that ``key`` is a setting of each model."""
    if any(key in preset.model.setting_types() for preset in PRESETS.values()):
        return f"it is a setting of each model: write it into [[models]], or --set 'models.*.{key}=VALUE'"
    return did_you_mean(f"{section}.{key}", [f"{section}.{each}" for each in known], cutoff=0.5)


def _build_model(row: Mapping[str, Any], context: str) -> ModelConfig:
    preset = row.get("preset")
    if not isinstance(preset, str):
        raise ValueError(f"{context}: no preset: write preset = 'bahdanau' or another of `attnbench models`")
    label = convert_setting(row.get("label", preset), str, f"{context}.label")
    if label != preset and label in PRESETS:  # tables show labels
        raise ValueError(
            f"{context}: label {label!r} is the name of another preset than {preset!r}: choose another"
        )
    overrides = {key: value for key, value in row.items() if key not in ("preset", "label")}
    return ModelConfig(preset=preset, label=label, overrides=overrides)


def _build_system(row: Mapping[str, Any], context: str, base: Path) -> SystemConfig:
    label, *files = (
        convert_setting(row.get(key), str, f"{context}.{key}") for key in dict.fromkeys(["label", *row])
    )
    if label in PRESETS:
        raise ValueError(f"{context}: label {label!r} is a preset of attnbench: choose another")
    tests = [key for key in row if key != "label"]
    paths = {test: absolute_root(file, base) for test, file in zip(tests, files, strict=True)}
    return SystemConfig(label=label, files=paths)


# Overrides of an experiment's tables from the command line, and grids of models.


LENGTHS = {"max_updates": "budgets", "budgets": "max_updates"}
"""The two settings of [train] that say how long training is."""


def _apply_override(table: dict[str, Any], override: str) -> None:
    """Write a setting from the command line into the tables of an experiment, which are checked later.

    Raises:
        ValueError: another shape than ``section.key=value`` or ``models.LABEL.key=value``, or no such label.
    """
    key, equals, text = override.partition("=")
    section, _, name = (part.strip() for part in key.partition("."))
    label, _, setting = name.rpartition(".")  # a label may have dots
    if not equals or not name or (section == "models" and not (label and setting)):
        raise ValueError(
            f"--set {override}: must look like section.key=value, such as train.max_updates=500, "
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
        changed = [row for row in models if label in (row["label"], ALL_MODELS)]
        if models and not changed:
            near = did_you_mean(label, [str(row["label"]) for row in models])
            raise ValueError(f"--set {override}: no model is labelled {abbreviate(label)}; {near}")
    for each in changed:
        if isinstance(each, dict):  # a section that is no table is refused later
            each[setting] = parse_value(text)
            if section == "train" and setting in LENGTHS:  # either replaces the other of the file
                each.pop(LENGTHS[setting], None)
            if (section, setting, each[setting]) == ("budget", "match", "none"):  # what the file adds to it
                each.pop("reference", None)
                each.pop("amount", None)


def parse_value(text: str) -> Any:
    """Read the value of an option: TOML, or else a bare string, or a list of such, "[lstm, gru]"."""
    text = text.strip()
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        is_list = text.startswith("[") and text.endswith("]")
        return [parse_value(part) for part in text[1:-1].split(",")] if is_list else text


def expand_grid(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield one ``[[models]]`` table per combination of the values that are listed in ``row``.

    A list is of several values if its setting takes one. A label gets every such setting and its value:
    ``dropout = [0.1, 0.2]`` of the label "lstm" gives "lstm-dropout-0.1" and "lstm-dropout-0.2". Without
    lists, the table itself is yielded.
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


# Writing.


BARE_KEY = re.compile("[A-Za-z0-9_-]+")
"""A key that needs no quotes; names of test sets may have a point."""


def to_toml(
    sections: Mapping[str, Any],
    models: Iterable[Mapping[str, Any]],
    plugins: Sequence[str] = (),
    systems: Iterable[Mapping[str, Any]] = (),
) -> str:
    """Write an experiment, leaving out what is None.

    JSON writes numbers, strings and bools as TOML does, except for DEL, which TOML wants escaped.

    Args:
        sections: by name, dicts or dataclasses of settings.
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
        known = {key: value for key, value in values.items() if value is not None}
        names = [key if BARE_KEY.fullmatch(key) else json.dumps(key) for key in known]
        pairs = zip(names, known.values(), strict=True)
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in pairs]
        texts.append(header + "".join(lines))
    return "\n".join(texts).replace("\x7f", "\\u007f")
