"""Presets with overrides applied, and the settings of any model config by name."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, get_args

from compare.models.hybrid_config import UNUSED
from compare.models.registry import Architecture, TaskName, family_of
from compare.optim.config import OptimConfig


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """Complete settings of one model: everything needed to build and train it."""

    architecture: Architecture
    """Config of the model."""
    optim: OptimConfig
    """Config of the optimizer."""

    @property
    def task(self) -> TaskName:
        """What the model is trained and judged for."""
        return family_of(self.architecture).task

    def settings(self) -> dict[str, Any]:
        """Return every setting by name, as in a ``[[models]]`` table; optional settings may be None."""
        configs = (self.architecture, self.optim)
        return {name: value for config in configs for name, _, value in _settings(config)}

    def setting_types(self) -> dict[str, Any]:
        """Return the type of every setting, by name."""
        return {name: kind for part in (self.architecture, self.optim) for name, kind, _ in _settings(part)}

    def widths(self) -> dict[str, int]:
        """Return the settings that a matched budget scales, by name; those that are None follow others."""
        settings = self.settings()
        names = family_of(self.architecture).width_fields
        return {name: settings[name] for name in names if settings.get(name) is not None}

    def head_size(self) -> int | None:
        """Return the width of a head of a Transformer, or of the Transformer half; None for other models."""
        settings = self.settings()
        if "d_model" not in settings or "num_heads" not in settings:
            return None
        return int(settings.get("head_size") or settings["d_model"] // settings["num_heads"])

    def width_multiple(self) -> int:
        """Return the largest power of two that divides every width and the size of a head."""
        common = gcd(*self.widths().values(), self.head_size() or 0)
        return common & -common

    def override(self, values: Mapping[str, Any]) -> "ResolvedModel":
        """Replace settings; a name that both halves of a hybrid have replaces both.

        Raises:
            ValueError: the model has no such setting, a value is out of range, or the combination cannot be
                built.
        """
        if unknown := sorted(values.keys() - self.setting_types().keys()):
            raise ValueError(f"this model has no setting {unknown[0]!r}")
        return ResolvedModel(
            architecture=_replace(self.architecture, values), optim=_replace(self.optim, values)
        )


def _settings(config: Any, unused: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, type, value) of each setting, including those of nested configs."""
    for field, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            yield from _settings(value, unused | _unused(field.name, value))
        else:
            yield field.name, field.type, value


def _replace(config: Any, values: Mapping[str, Any], unused: frozenset[str] = frozenset()) -> Any:
    """Copy ``config`` with the values that are settings of it or of a nested config."""
    changes = {}
    for field, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            changes[field.name] = _replace(value, values, unused | _unused(field.name, value))
        elif field.name in values:
            changes[field.name] = values[field.name]
    return dataclasses.replace(config, **changes)


def _unused(role: str, config: Any) -> frozenset[str]:
    """Return the settings without effect in the half ``role`` ("encoder" or "decoder") of a hybrid."""
    return UNUSED.get((role, type(config)), frozenset())


def _fields(config: Any, unused: frozenset[str]) -> Iterator[tuple["dataclasses.Field[Any]", Any]]:
    """Yield the fields with their values, without unused ones and nested configs that are None."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        absent = value is None and any(dataclasses.is_dataclass(arg) for arg in get_args(field.type))
        if field.name not in unused and not absent:
            yield field, value
