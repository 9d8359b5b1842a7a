"""Overrides of an experiment's tables from the command line: ``section.key`` and ``models.LABEL.key``."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from compare.config.toml_text import parse_value
from compare.system.hints import abbreviate, did_you_mean

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
