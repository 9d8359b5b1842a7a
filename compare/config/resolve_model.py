"""Resolve a ``[[models]]`` table to a model: its preset with its overrides applied."""

from compare.config.overrides import suggest_setting
from compare.config.parse import check_type
from compare.config.sections import ModelConfig
from compare.models.presets import find_preset
from compare.models.resolved_model import ResolvedModel
from compare.system.hints import abbreviate


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
