"""Resolve a ``[[models]]`` table to a model, its preset with its overrides applied, and find its plug-ins."""

from collections.abc import Iterable

from compare.config.overrides import suggest_setting
from compare.config.parse import check_type
from compare.config.sections import ModelConfig
from compare.models.presets import find_preset
from compare.models.registry import family_of
from compare.models.resolved_model import ResolvedModel
from compare.system.hints import abbreviate
from compare.system.plugins import PLUGINS


def resolve_model(row: ModelConfig, context: str = "config") -> ResolvedModel:
    """Apply the overrides of a ``[[models]]`` table to its preset.

    Args:
        row: the preset's name, the label and the overrides.
        context: what error messages begin with.

    Raises:
        ValueError: unknown preset or key (with the nearest one), or a value out of range.
    """
    context = f"{context}: models.{row.label}"
    model = find_preset(row.preset, f"{context}: ").model
    kinds = model.setting_types()
    values = {}
    for key, value in row.overrides.items():
        if key not in kinds:
            raise ValueError(f"{context}: unknown key {abbreviate(key)}; {suggest_setting(key, kinds)}")
        values[key] = check_type(value, kinds[key], f"{context}: {key}")
    try:
        return model.override(values)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None


def used_plugins(named: Iterable[str], preset: str, model: ResolvedModel) -> tuple[str, ...]:
    """List the plug-ins that the results of a model depend on.

    Args:
        named: those that the experiment's file names.
        preset: name of the model's preset.
        model: the model.

    Returns:
        These, and any imported otherwise that registers the preset, the family or the score of the model, or
        a metric, which every result has.
    """
    family = family_of(model.architecture).config
    used = {("preset", preset), ("family", family), ("score", model.settings().get("score"))}
    others = [
        plugin.module
        for plugin in PLUGINS.values()
        if plugin.registered & used or any(kind == "metric" for kind, _ in plugin.registered)
    ]
    return tuple(dict.fromkeys([*named, *sorted(others)]))
