"""From a row of an experiment to a model: a preset, its overrides, and what is built from both."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from compare.config import ModelConfig
from compare.hint import hint, shown
from compare.hybrid_config import UNUSED, HybridConfig
from compare.optim import OptimConfig
from compare.parse import typed, unknown_key
from compare.presets import PRESETS, Architecture, Preset
from seq2seq.config import Seq2SeqConfig
from transformer.config import DecoderOnlyConfig, TransformerConfig

if TYPE_CHECKING:
    from compare.hybrid import Hybrid
    from seq2seq.model import Seq2Seq
    from transformer.decoder_only import DecoderOnly
    from transformer.model import Transformer

    Model = Seq2Seq | Transformer | DecoderOnly | Hybrid
    """What ``build`` makes: a module that fits ``compare.protocol.EncoderDecoder``."""


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """A row's preset with its overrides applied: all that is needed to build and train it."""

    architecture: Architecture
    optim: OptimConfig

    def settings(self) -> dict[str, Any]:
        """Every setting by its name, as a ``[[models]]`` table would give it; None where it has none."""
        parts = (self.architecture, self.optim)
        return {name: value for part in parts for name, _, value in _settings(part)}


def find_preset(name: str, place: str = "") -> Preset:
    """The preset of that name.

    Raises:
        ValueError: there is none; the nearest name is given.
    """
    if name in PRESETS:
        return PRESETS[name]
    raise ValueError(f"{place}unknown preset {shown(name)}; {hint(name, PRESETS)}")


def resolve(row: ModelConfig, place: str = "config") -> Blueprint:
    """Apply a row's overrides to its preset.

    Raises:
        ValueError: unknown preset or key (with the nearest one), or a value that cannot be.
    """
    place = f"{place}: models.{row.label}"
    preset = find_preset(row.preset, f"{place}: ")
    kinds = {name: kind for part in (preset.architecture, preset.optim) for name, kind, _ in _settings(part)}
    values = {}
    for key, value in row.overrides.items():
        if key not in kinds:
            raise unknown_key(place, key, kinds)
        values[key] = typed(value, kinds[key], f"{place}: {key}")
    try:
        return Blueprint(
            architecture=_replace(preset.architecture, values), optim=_replace(preset.optim, values)
        )
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def build(architecture: Architecture, src_vocabulary: int, tgt_vocabulary: int) -> "Model":
    """Make the model with fresh weights; the torch seed decides them."""
    from compare.hybrid import build_hybrid
    from seq2seq.model import Seq2Seq
    from transformer.decoder_only import DecoderOnly
    from transformer.model import Transformer

    match architecture:
        case Seq2SeqConfig():
            return Seq2Seq(architecture, src_vocabulary, tgt_vocabulary)
        case TransformerConfig():
            return Transformer(architecture, src_vocabulary, tgt_vocabulary)
        case HybridConfig():
            return build_hybrid(architecture, src_vocabulary, tgt_vocabulary)
        case DecoderOnlyConfig():
            return DecoderOnly(architecture, src_vocabulary, tgt_vocabulary)


def _settings(config: Any, unused: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any, Any]]:
    """(name, type, value) of each setting, those of a config inside another one among them."""
    for item, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            yield from _settings(value, unused | _unused(item.name, value))
        else:
            yield item.name, item.type, value


def _replace(config: Any, values: Mapping[str, Any], unused: frozenset[str] = frozenset()) -> Any:
    """``config`` with those values that are its settings; a name in both halves of a hybrid means both."""
    changes = {}
    for item, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            changes[item.name] = _replace(value, values, unused | _unused(item.name, value))
        elif item.name in values:
            changes[item.name] = values[item.name]
    return dataclasses.replace(config, **changes)


def _unused(role: str, config: Any) -> frozenset[str]:
    """Settings that mean nothing to the half ``role`` of a hybrid."""
    return UNUSED.get((role, type(config)), frozenset())


def _fields(config: Any, unused: frozenset[str]) -> Iterator[tuple["dataclasses.Field[Any]", Any]]:
    """The fields with their values, but for unused ones and for a config that is left out."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        absent = value is None and any(dataclasses.is_dataclass(kind) for kind in get_args(item.type))
        if item.name not in unused and not absent:
            yield item, value
