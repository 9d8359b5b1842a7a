"""Registry of model families: building, FLOPs, resolved models, and models without weights."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass
from math import gcd
from typing import Any, ClassVar, Literal, Protocol, cast, get_args

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from compare.models.flops import count_multiply_adds
from compare.models.hybrid import UNUSED, HybridConfig, Ladder, LadderConfig, build_hybrid
from compare.optim_config import OptimConfig
from compare.protocol import EncoderDecoder
from compare.system.measure import physical_memory_bytes
from compare.system.plugins import is_of_plugin
from seq2seq.config import RecurrentLanguageModelConfig, Seq2SeqConfig
from seq2seq.model import Features, RecurrentLanguageModel, Seq2Seq
from seq2seq.scores import SCORES
from transformer.config import DecoderOnlyConfig, LanguageModelConfig, TransformerConfig
from transformer.decoder_only import DecoderOnly, LanguageModel
from transformer.model import Transformer

Model = Seq2Seq | Transformer | DecoderOnly
"""A module that implements ``compare.protocol.EncoderDecoder``. Python has no type for "a module and an
``EncoderDecoder``", so type checkers take every model for one of these; other families need no entry."""
TaskName = Literal["translation", "language modelling"]
MEMBERS = ("output", "features", "encode", "init_state", "step", "attention")
GIB = 2**30


class Architecture(Protocol):
    """Config of a model: any frozen dataclass that validates itself."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@dataclass(frozen=True)
class Family:
    """Description of a model family: config, construction, cost and width fields."""

    name: str
    config: type
    """Class of its configs; subclasses belong to the family of their nearest registered base class."""
    build: Callable[[Any, int, int], EncoderDecoder[Any, Any]]
    """(config, source vocabulary size, target vocabulary size) -> model with fresh weights."""
    multiply_adds: Callable[[Any, float, float], float]
    """(model on the meta device, source tokens, target tokens) -> multiply-adds of all matrix products of the
    forward pass of one sentence pair, without the output layer; both lengths may be means."""
    width_fields: tuple[str, ...] = ()
    """Config fields that a matched budget scales by one factor; the last one is also adjusted alone."""
    task: TaskName = "translation"
    """Task of its models; those of one experiment have the same."""


FAMILIES: dict[type, Family] = {}


def register_family(family: Family) -> None:
    """Add a model family, so that presets of it can be registered, built and counted.

    A ValueError says that the config class belongs to another family.
    """
    if family.config in FAMILIES:
        raise ValueError(f"the config class {family.config.__name__} is registered already")
    FAMILIES[family.config] = family


class WithoutSource(nn.Module):
    """p(y | x) = p(y): a language model of the target that ignores the source.

    It implements ``compare.protocol.EncoderDecoder``, so that it is trained, scored and sampled from by the
    code that serves all models; every method accepts any source, whose content changes nothing.
    """

    reads_source = False

    def __init__(self, model: RecurrentLanguageModel | LanguageModel) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    @property
    def output(self) -> nn.Linear:
        """Layer from features (..., D) to logits (..., V)."""
        return self.model.output

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute the logits of every target position of tgt_in (B, T): (B, T, V)."""
        logits: Tensor = self.model(tgt_in)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input (B, T, D) of ``output`` at all positions of tgt_in (B, T)."""
        return Features(self.model.states(tgt_in))

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights of self-attention by name, (B, heads, T, T) each; none for an RNN."""
        return self.model.attention(tgt_in)

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """Return an empty memory, (B, 0), for src (B, S)."""
        return src.new_zeros(src.size(0), 0)

    def init_state(self, memory: Tensor, beam: int, capacity: int) -> Any:
        """Build the state before the first token of each of K = ``beam`` hypotheses."""
        return self.model.init_state(memory.size(0), beam, capacity)

    def step(self, tokens: Tensor, state: Any, memory: Tensor) -> tuple[Tensor, Any]:
        """Decode one position: from tokens (B, K) the logits of the next ones (B, K, V), and the state."""
        return self.model.step(tokens, state)


@dataclass(frozen=True)
class ExternalSystem:
    """Config of an external system: its translations were made elsewhere, and there is no model."""


def _build_external(*_: Any) -> EncoderDecoder[Any, Any]:
    raise ValueError("an external system has no model: name its translations in [[systems]]")


def _count_without_source(model: WithoutSource, src_len: float, tgt_len: float) -> float:
    return count_multiply_adds(model.model, src_len, tgt_len)


_WIDTHS = ("d_model", "ffn_size")
_RECURRENT_WIDTHS = ("hidden_size", "encoder_size", "attention_size", "embedding_size")
_HYBRID_WIDTHS = (*_WIDTHS, "embedding_size", "encoder_size", "attention_size", "hidden_size")
for _family in (
    Family("seq2seq", Seq2SeqConfig, Seq2Seq, count_multiply_adds, _RECURRENT_WIDTHS),
    Family("transformer", TransformerConfig, Transformer, count_multiply_adds, _WIDTHS),
    Family("decoder-only", DecoderOnlyConfig, DecoderOnly, count_multiply_adds, _WIDTHS),
    Family("ladder", LadderConfig, Ladder, count_multiply_adds, _WIDTHS),
    Family("hybrid", HybridConfig, build_hybrid, count_multiply_adds, _HYBRID_WIDTHS),
    Family(
        "recurrent-language-model",
        RecurrentLanguageModelConfig,
        lambda config, _, size: WithoutSource(RecurrentLanguageModel(config, size)),
        _count_without_source,
        ("embedding_size", "hidden_size"),
        "language modelling",
    ),
    Family(
        "transformer-language-model",
        LanguageModelConfig,
        lambda config, _, size: WithoutSource(LanguageModel(config, size)),
        _count_without_source,
        _WIDTHS,
        "language modelling",
    ),
    Family("external", ExternalSystem, _build_external, lambda *_: 0.0),
):
    register_family(_family)


def family_of(config: Any) -> Family:
    """Find the family of a config; a ValueError if neither its class nor a base class is registered."""
    for cls in type(config).__mro__:
        if cls in FAMILIES:
            return FAMILIES[cls]
    names = ", ".join(cls.__name__ for cls in FAMILIES)
    raise ValueError(f"{type(config).__name__} belongs to no registered family of models: known are {names}")


def build(config: Architecture, src_vocabulary: int, tgt_vocabulary: int) -> Model:
    """Build a model with fresh weights, drawn from torch's global generator.

    It is on the CPU unless a ``torch.device`` context is active. A ValueError says that the config belongs to
    no registered family, ties embeddings of different size, or that the family builds something that lacks
    what ``compare.protocol`` asks for.
    """
    family = family_of(config)
    model = family.build(config, src_vocabulary, tgt_vocabulary)
    if lacking := [name for name in MEMBERS if not hasattr(model, name)]:
        raise ValueError(
            f"{type(model).__name__} of family {family.name!r} lacks {lacking[0]}: see compare/protocol.py"
        )
    return cast("Model", model)


# Floating-point operations (FLOPs) of the models.
#
# Each multiply-add of a matrix product counts as 2, including those of attention and of the output layer.
# Only real tokens count, no padding; causal attention counts as the full square. Embedding look-ups, biases,
# norms, softmax, gates and other elementwise work are not counted.


def train_flops_per_token(
    config: Architecture, *, src_len: float, tgt_len: float, tgt_vocabulary: int, passes: int = 1
) -> float:
    """Count the FLOPs of a training update per token, three times ``forward_flops``.

    The backward pass has two products for each one of the forward pass, for the gradients of its two factors.
    Tokens are those that throughput counts: the source without the end of sentence, and the target with it.
    With consistency regularisation there are 2 ``passes``, whose tokens count once.
    """
    forward = forward_flops(config, src_len=src_len, tgt_len=tgt_len, tgt_vocabulary=tgt_vocabulary)
    return passes * 3 * forward / (src_len - 1 + tgt_len)


def forward_flops(config: Architecture, *, src_len: float, tgt_len: float, tgt_vocabulary: int) -> float:
    """Count the FLOPs of the logits of one sentence pair with given target.

    Lengths are token counts, end of sentence included, possibly means.
    """
    model = build_meta_model(config, tgt_vocabulary, tgt_vocabulary)
    multiply_adds = family_of(config).multiply_adds(model, src_len, tgt_len)
    return 2 * (multiply_adds + tgt_len * model.output.in_features * tgt_vocabulary)


# Presets with overrides applied, and the settings of any model config by name.


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """Complete settings of one model: everything needed to build and train it."""

    architecture: Architecture
    optim: OptimConfig

    @property
    def task(self) -> TaskName:
        """Task that the model is trained and judged for."""
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
        """Return the width of a head of a Transformer, or of the Transformer half; None for other models.

        It is also None for a head as wide as the states, because nothing projects them.
        """
        settings = self.settings()
        if "d_model" not in settings or "num_heads" not in settings or settings.get("projections") == "none":
            return None
        return int(settings.get("head_size") or settings["d_model"] // settings["num_heads"])

    def width_multiple(self) -> int:
        """Return the largest power of two that divides every width and the size of a head."""
        common = gcd(*self.widths().values(), self.head_size() or 0)
        return common & -common

    def plugin_part(self) -> Any:
        """Return the method ``score``, or the class, of a plug-in's score or family; None without one."""
        score, family = SCORES.get(str(self.settings().get("score"))), family_of(self.architecture)
        if score is not None and is_of_plugin(score):
            return vars(score).get("score", score)
        return family.build if is_of_plugin(family.config) else None

    def override(self, values: Mapping[str, Any]) -> "ResolvedModel":
        """Replace settings; a name that both halves of a hybrid have replaces both.

        A ValueError says that the model has no such setting, or that it cannot be built with this value.
        """
        if unknown := sorted(values.keys() - self.setting_types().keys()):
            raise ValueError(f"this model has no setting {unknown[0]!r}")
        return ResolvedModel(
            architecture=_replace(self.architecture, values), optim=_replace(self.optim, values)
        )


def _settings(config: Any, unused: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any, Any]]:
    for field, value in _fields(config, unused):
        if dataclasses.is_dataclass(value):
            yield from _settings(value, unused | _unused(field.name, value))
        else:
            yield field.name, field.type, value


def _replace(config: Any, values: Mapping[str, Any], unused: frozenset[str] = frozenset()) -> Any:
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
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        absent = value is None and any(dataclasses.is_dataclass(arg) for arg in get_args(field.type))
        if field.name not in unused and not absent:
            yield field, value


# Models without storage, on torch's meta device: their shapes and their size in bytes.


def build_meta_model(architecture: Architecture, src_vocabulary: int, tgt_vocabulary: int) -> Model:
    """Build a model on the meta device, which allocates nothing."""
    with torch.device("meta"), _NoInitialisation():
        return build(architecture, src_vocabulary, tgt_vocabulary)


def count_weights(module: nn.Module) -> int:
    """Count the trained weights of a model or a part of it, tied ones once."""
    return sum(weight.numel() for weight in module.parameters())


class _NoInitialisation(TorchFunctionMode):
    """Leave out random values, for which torch imports its compiler where tensors have no values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("normal_", "uniform_", "trunc_normal_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def training_bytes(model: Model, *, ema: bool) -> int:
    """Count the bytes of weights, gradients, AdamW's two moments and, with ``ema``, a moving average."""
    return sum(parameter.nbytes for parameter in model.parameters()) * (5 if ema else 4)


def ensure_fits_memory(
    architecture: Architecture, src_vocabulary: int, tgt_vocabulary: int, *, context: str, ema: bool
) -> None:
    """Refuse a model that this machine's memory cannot train, before anything is allocated.

    The ValueError begins with ``context`` and says what is needed and what to lower; ``ema`` counts a moving
    average of the weights too.
    """
    needed = training_bytes(build_meta_model(architecture, src_vocabulary, tgt_vocabulary), ema=ema)
    memory = physical_memory_bytes()
    if memory is not None and needed > memory:
        widths = ", ".join(family_of(architecture).width_fields)
        raise ValueError(
            f"{context}: needs {needed / GIB:,.1f} GiB for weights, gradients and optimizer, but this "
            f"machine has {memory / GIB:,.1f} GiB: lower {widths}, the number of layers or vocabulary.size"
        )
