"""A preset with its overrides applied, and the settings of any model config by name."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from compare.models.hybrid_config import UNUSED
from compare.models.registry import Architecture
from compare.optim.config import OptimConfig


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """All that is needed to build and train one model."""

    architecture: Architecture
    optim: OptimConfig

    def settings(self) -> dict[str, Any]:
        """Every setting by its name, as a ``[[models]]`` table would give it; None where it has none."""
        parts = (self.architecture, self.optim)
        return {name: value for part in parts for name, _, value in _settings(part)}

    def setting_types(self) -> dict[str, Any]:
        """The type of every setting, by name."""
        return {name: kind for part in (self.architecture, self.optim) for name, kind, _ in _settings(part)}

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
    """(name, type, value) of each setting, those of nested configs included."""
    for item, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            yield from _settings(value, unused | _unused(item.name, value))
        else:
            yield item.name, item.type, value


def _replace(config: Any, values: Mapping[str, Any], unused: frozenset[str] = frozenset()) -> Any:
    """``config`` with those of ``values`` that are its settings."""
    changes = {}
    for item, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            changes[item.name] = _replace(value, values, unused | _unused(item.name, value))
        elif item.name in values:
            changes[item.name] = values[item.name]
    return dataclasses.replace(config, **changes)


def _unused(role: str, config: Any) -> frozenset[str]:
    """Settings without effect in the half ``role`` ("encoder" or "decoder") of a hybrid."""
    return UNUSED.get((role, type(config)), frozenset())


def _fields(config: Any, unused: frozenset[str]) -> Iterator[tuple["dataclasses.Field[Any]", Any]]:
    """The fields with their values, without unused ones and without nested configs that are None."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        absent = value is None and any(dataclasses.is_dataclass(kind) for kind in get_args(item.type))
        if item.name not in unused and not absent:
            yield item, value
