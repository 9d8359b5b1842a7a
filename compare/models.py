"""The presets, one a row of a comparison, and how a model is built from one."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from compare.config import ModelConfig
from compare.optim import OptimConfig
from compare.parse import typed, unknown_key
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

if TYPE_CHECKING:
    from seq2seq.model import Seq2Seq
    from transformer.model import Transformer

    Model = Seq2Seq | Transformer
    """What ``build`` makes: a module that fits ``compare.protocol.EncoderDecoder``."""

Architecture = Seq2SeqConfig | TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model under its name in the literature."""

    about: str
    source: str
    architecture: Architecture
    optim: OptimConfig = field(default_factory=OptimConfig)


def _luong(attention: Any) -> Seq2SeqConfig:
    """Attention after the cell with input feeding (Luong et al. 2015, sections 3.1 and 3.3)."""
    return Seq2SeqConfig(attention=attention, placement="after", input_feeding=True, tie="output")


PRESETS: dict[str, Preset] = {
    "lstm": Preset(
        about="LSTM encoder-decoder without attention",
        source="Sutskever et al. 2014",
        architecture=Seq2SeqConfig(attention="none", tie="output"),
    ),
    "bahdanau": Preset(
        about="additive attention before the cell",
        source="Bahdanau et al. 2015",
        architecture=Seq2SeqConfig(attention="additive", tie="output"),
    ),
    "luong-dot": Preset(
        about="dot-product attention after the cell, input feeding",
        source="Luong et al. 2015",
        architecture=_luong("dot"),
    ),
    "luong-general": Preset(
        about="bilinear attention after the cell, input feeding",
        source="Luong et al. 2015",
        architecture=_luong("general"),
    ),
    "luong-concat": Preset(
        about="additive attention after the cell, input feeding",
        source="Luong et al. 2015",
        architecture=_luong("concat"),
    ),
    "transformer": Preset(
        about="self-attention encoder-decoder",
        source="Vaswani et al. 2017",
        architecture=TransformerConfig(),
        optim=OptimConfig(schedule="linear", warmup_updates=400),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """A row's preset with its overrides applied: all that is needed to build and train it."""

    architecture: Architecture
    optim: OptimConfig


def resolve(row: ModelConfig, place: str = "config") -> Blueprint:
    """Apply a row's overrides to its preset.

    Raises:
        ValueError: unknown preset or key (with the nearest one), or a value that cannot be.
    """
    place = f"{place}: models.{row.label}"
    if row.preset not in PRESETS:
        close = get_close_matches(row.preset, PRESETS, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(PRESETS)}"
        raise ValueError(f"{place}: unknown preset {row.preset!r}; {hint}")
    preset = PRESETS[row.preset]
    parts = (preset.architecture, preset.optim)
    kinds = [{item.name: item.type for item in dataclasses.fields(part)} for part in parts]
    for key in row.overrides:
        if not any(key in kind for kind in kinds):
            raise unknown_key(place, key, [name for kind in kinds for name in kind])
    architecture, optim = (
        _replace(part, kind, row.overrides, place) for part, kind in zip(parts, kinds, strict=True)
    )
    return Blueprint(architecture=architecture, optim=optim)


def _replace(part: Any, kinds: Mapping[str, Any], overrides: Mapping[str, Any], place: str) -> Any:
    """``part`` with those overrides that are its fields."""
    values = {
        key: typed(value, kinds[key], f"{place}: {key}") for key, value in overrides.items() if key in kinds
    }
    try:
        return dataclasses.replace(part, **values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def build(architecture: Architecture, src_vocabulary: int, tgt_vocabulary: int) -> "Model":
    """Make the model with fresh weights; the torch seed decides them."""
    from seq2seq.model import Seq2Seq
    from transformer.model import Transformer

    if isinstance(architecture, Seq2SeqConfig):
        return Seq2Seq(architecture, src_vocabulary, tgt_vocabulary)
    return Transformer(architecture, src_vocabulary, tgt_vocabulary)
