"""From a ``[[models]]`` table to a model: its preset with its overrides applied."""

from compare.config.parse import check_type, unknown_key
from compare.config.sections import ModelConfig
from compare.models.presets import find_preset
from compare.models.resolved_model import ResolvedModel, override, setting_types


def resolve_model(row: ModelConfig, place: str = "config") -> ResolvedModel:
    """Apply a row's overrides to its preset.

    Args:
        row: the preset's name, the label and the overrides.
        place: what error messages begin with.

    Raises:
        ValueError: unknown preset or key (with the nearest one), or a value out of range.
    """
    place = f"{place}: models.{row.label}"
    preset = find_preset(row.preset, f"{place}: ")
    kinds = setting_types(preset)
    values = {}
    for key, value in row.overrides.items():
        if key not in kinds:
            raise unknown_key(place, key, kinds)
        values[key] = check_type(value, kinds[key], f"{place}: {key}")
    try:
        return override(preset, values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
