"""Registry of model families.

A family is identified by the class of its config. The module that defines the config of a new family calls
``register_family``, so that every config that exists belongs to a registered family.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, cast

import seq2seq.flops
import transformer.flops
from compare.models.hybrid_config import HybridConfig, hybrid_multiply_adds
from compare.models.ladder_config import LadderConfig, ladder_multiply_adds
from compare.system.plugins import track_registry
from seq2seq.config import RecurrentLanguageModelConfig, Seq2SeqConfig
from seq2seq.scores import SCORES
from transformer.config import DecoderOnlyConfig, LanguageModelConfig, TransformerConfig

if TYPE_CHECKING:
    from compare.models.hybrid import Hybrid
    from compare.models.ladder import Ladder
    from compare.models.language_model import WithoutSource
    from compare.protocol import EncoderDecoder
    from seq2seq.model import Seq2Seq
    from transformer.decoder_only import DecoderOnly
    from transformer.model import Transformer

    Model = Seq2Seq | Transformer | DecoderOnly | Hybrid
    """A module that implements ``compare.protocol.EncoderDecoder``. Python has no type for "a module and an
    ``EncoderDecoder``", so type checkers take every model for one of these; other families need no entry."""


TaskName = Literal["translation", "language modelling"]
"""What a model is trained and judged for."""

METHODS = ("forward", "features", "encode", "init_state", "step", "attention")
"""Methods of every model: those of ``compare.protocol.EncoderDecoder``, and ``forward``, for its logits."""


class Architecture(Protocol):
    """Config of a model: any frozen dataclass that validates itself."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Operations(NamedTuple):
    """Cost of the forward pass of one sentence pair, output layer excluded."""

    multiply_adds: float
    """Multiply-adds of all matrix products."""
    output_size: int
    """Input width of the output layer."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Description of a model family: config, construction, cost formulas and width fields."""

    name: str
    """Name of the family."""
    config: type
    """Class of its configs; subclasses belong to the family of their nearest registered base class."""
    build: Callable[[Any, int, int], "EncoderDecoder[Any, Any]"]
    """(config, source vocabulary size, target vocabulary size) -> model with fresh weights."""
    operations: Callable[[Any, float, float], Operations]
    """(config, source tokens, target tokens) -> cost of the forward pass; both lengths may be means."""
    width_fields: tuple[str, ...]
    """Config fields that a matched budget scales by one factor; the last one is also adjusted alone."""
    task: TaskName = "translation"
    """What its models do; those of one experiment do the same."""


def _build_seq2seq(config: Seq2SeqConfig, src_vocabulary: int, tgt_vocabulary: int) -> "Seq2Seq":
    from seq2seq.model import Seq2Seq

    return Seq2Seq(config, src_vocabulary, tgt_vocabulary)


def _build_transformer(config: TransformerConfig, src_vocabulary: int, tgt_vocabulary: int) -> "Transformer":
    from transformer.model import Transformer

    return Transformer(config, src_vocabulary, tgt_vocabulary)


def _build_decoder_only(config: DecoderOnlyConfig, src_vocabulary: int, tgt_vocabulary: int) -> "DecoderOnly":
    from transformer.decoder_only import DecoderOnly

    return DecoderOnly(config, src_vocabulary, tgt_vocabulary)


def _build_hybrid(config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> "Hybrid":
    from compare.models.hybrid import build_hybrid

    return build_hybrid(config, src_vocabulary, tgt_vocabulary)


def _build_ladder(config: LadderConfig, src_vocabulary: int, tgt_vocabulary: int) -> "Ladder":
    from compare.models.ladder import Ladder

    return Ladder(config, src_vocabulary, tgt_vocabulary)


def _build_language_model(
    config: RecurrentLanguageModelConfig | LanguageModelConfig, src_vocabulary: int, tgt_vocabulary: int
) -> "WithoutSource":
    from compare.models.language_model import build_language_model

    return build_language_model(config, tgt_vocabulary)


def _seq2seq_operations(config: Seq2SeqConfig, src_len: float, tgt_len: float) -> Operations:
    return Operations(seq2seq.flops.multiply_adds(config, src_len, tgt_len), config.output_size)


def _transformer_operations(
    config: TransformerConfig | DecoderOnlyConfig, src_len: float, tgt_len: float
) -> Operations:
    return Operations(transformer.flops.multiply_adds(config, src_len, tgt_len), config.d_model)


def _hybrid_operations(config: HybridConfig, src_len: float, tgt_len: float) -> Operations:
    decoder = config.decoder
    width = decoder.output_size if isinstance(decoder, Seq2SeqConfig) else decoder.d_model
    return Operations(hybrid_multiply_adds(config, src_len, tgt_len), width)


def _ladder_operations(config: LadderConfig, src_len: float, tgt_len: float) -> Operations:
    return Operations(ladder_multiply_adds(config, src_len, tgt_len), config.d_model)


def _recurrent_language_model_operations(
    config: RecurrentLanguageModelConfig, src_len: float, tgt_len: float
) -> Operations:
    count = seq2seq.flops.language_model_multiply_adds(config, tgt_len)
    return Operations(count, config.decoder.output_size)


def _transformer_language_model_operations(
    config: LanguageModelConfig, src_len: float, tgt_len: float
) -> Operations:
    return Operations(transformer.flops.multiply_adds(config, 0, tgt_len), config.d_model)


FAMILIES: dict[type, Family] = {}
"""All families by config class."""


def register_family(family: Family) -> None:
    """Add a family, so that presets with its config class can be registered.

    Args:
        family: its config class and functions.

    Raises:
        ValueError: not a ``Family``, or its config class is already registered.
    """
    if not isinstance(family, Family):
        raise ValueError(f"a family must be a Family, found {family!r:.80}")
    if family.config in FAMILIES:
        raise ValueError(f"the config class {family.config.__name__} is registered already")
    FAMILIES[family.config] = family


for _family in (
    Family(
        name="seq2seq",
        config=Seq2SeqConfig,
        build=_build_seq2seq,
        operations=_seq2seq_operations,
        width_fields=("hidden_size", "encoder_size", "attention_size", "embedding_size"),
    ),
    Family(
        name="transformer",
        config=TransformerConfig,
        build=_build_transformer,
        operations=_transformer_operations,
        width_fields=("d_model", "ffn_size"),
    ),
    Family(
        name="decoder-only",
        config=DecoderOnlyConfig,
        build=_build_decoder_only,
        operations=_transformer_operations,
        width_fields=("d_model", "ffn_size"),
    ),
    Family(
        name="ladder",
        config=LadderConfig,
        build=_build_ladder,
        operations=_ladder_operations,
        width_fields=("d_model", "ffn_size"),
    ),
    Family(
        name="hybrid",
        config=HybridConfig,
        build=_build_hybrid,
        operations=_hybrid_operations,
        width_fields=(
            "d_model",
            "ffn_size",
            "embedding_size",
            "encoder_size",
            "attention_size",
            "hidden_size",
        ),
    ),
    Family(
        name="recurrent-language-model",
        config=RecurrentLanguageModelConfig,
        build=_build_language_model,
        operations=_recurrent_language_model_operations,
        width_fields=("embedding_size", "hidden_size"),
        task="language modelling",
    ),
    Family(
        name="transformer-language-model",
        config=LanguageModelConfig,
        build=_build_language_model,
        operations=_transformer_language_model_operations,
        width_fields=("d_model", "ffn_size"),
        task="language modelling",
    ),
):
    register_family(_family)
track_registry("family", FAMILIES)
track_registry("score", SCORES)  # here, as seq2seq knows nothing of plug-ins


def family_of(config: Any) -> Family:
    """Find the family that a config belongs to.

    Raises:
        ValueError: neither its class nor a base class is registered.
    """
    for cls in type(config).__mro__:
        if cls in FAMILIES:
            return FAMILIES[cls]
    names = ", ".join(cls.__name__ for cls in FAMILIES)
    raise ValueError(f"{type(config).__name__} belongs to no registered family of models: known are {names}")


def build(config: Architecture, src_vocabulary: int, tgt_vocabulary: int) -> "Model":
    """Build a model with fresh weights, drawn from torch's global generator.

    Args:
        config: config of the model.
        src_vocabulary: size of the source vocabulary.
        tgt_vocabulary: size of the target vocabulary.

    Returns:
        A torch module, on the CPU unless a ``torch.device`` context is active.

    Raises:
        ValueError: the config belongs to no registered family, ties embeddings of different size, or the
            family builds something that lacks what ``compare.protocol`` asks for.
    """
    family = family_of(config)
    model = family.build(config, src_vocabulary, tgt_vocabulary)
    _check_interface(model, family.name)
    return cast("Model", model)


def _check_interface(model: Any, family: str) -> None:
    """Raise ValueError if ``model`` lacks a method or the layer that every model has."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise ValueError(f"family {family!r} builds {type(model).__name__}, which is no torch module")
    for name in METHODS:
        if not callable(getattr(model, name, None)):
            raise ValueError(
                f"{type(model).__name__} of family {family!r} has no method {name}: see compare/protocol.py"
            )
    if not isinstance(getattr(model, "output", None), nn.Linear):
        raise ValueError(
            f"{type(model).__name__} of family {family!r} has no layer output, a torch.nn.Linear from "
            "features to logits: see compare/protocol.py"
        )
