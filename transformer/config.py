"""Sizes and options of the Transformer, checked when a config is made."""

import json
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, Self, get_args, get_origin

from .masks import FORMS, is_pattern

Norm = Literal["pre", "post", "none"]
NormKind = Literal["layer", "rms"]
Activation = Literal["relu", "gelu", "swiglu"]
Positions = Literal[
    "sinusoidal",
    "learned",
    "network",
    "concat",
    "concat-learned",
    "rotary",
    "relative",
    "t5",
    "alibi",
    "none",
]
AttentionKind = Literal["scaled", "unscaled", "hard", "linear"]
Projections = Literal["separate", "shared-qk", "none"]
Tie = Literal["none", "output", "all"]
IN_ATTENTION = ("rotary", "relative", "t5", "alibi")
"""Values of ``positions`` that self-attention implements; the others are of embeddings."""
MAX_POSITIONS = 512
"""Number of learned position vectors, unless the config says otherwise."""
MAX_DISTANCE = 16
"""Largest distance that relative positions tell apart, k, unless the config says otherwise: Shaw et al. 2018,
section 4.1."""
T5_DISTANCE = 128
"""The same of T5's: Raffel et al. 2020, section 2.1."""
BUCKETS = 32
"""Ranges of distances with a bias of their own in T5's; in a decoder, half of them are single distances."""


class Config:
    """Base class of dataclasses of settings; the error of an unknown name lists those that exist."""

    def __new__(cls, **settings: Any) -> Self:
        """Refuse unknown names."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # subclasses are dataclasses
        if unknown := settings.keys() - {*names}:
            raise TypeError(f"{cls.__name__} has no setting {min(unknown)!r}; it has {', '.join(names)}")
        return super().__new__(cls)


def check_fields(config: Any) -> None:
    """Raise a ValueError for names that do not exist, sizes below 1 and dropouts outside [0, 1)."""
    for field in fields(config):
        name, kind, value = field.name, field.type, getattr(config, field.name)
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        if choices and value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if kind in (int, int | None) and value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value}")


def check_rule(config: Any, name: str, holds: bool, rule: str) -> None:
    """Raise a ValueError if a setting has another value than its default and breaks a rule."""
    value = getattr(config, name)
    if not holds and value != getattr(type(config), name):
        raise ValueError(f"{name} {json.dumps(value)} {rule}")


@dataclass(frozen=True, kw_only=True)
class LayerConfig(Config):
    """Options that all models of this package share; a ValueError names an invalid field and its value."""

    positions: Positions = "sinusoidal"
    """Added to embeddings: sinusoids, one learned vector per position ("learned"), or the output of a network
    of the position ("network"). In the place of the embedding's last numbers: sinusoids ("concat") or learned
    vectors ("concat-learned"). In self-attention: rotation of queries and keys ("rotary"), learned vectors
    per distance ("relative"), a learned bias per range of distances and head ("t5", Raffel et al. 2020), a
    bias linear in the distance ("alibi"). Or none."""
    position_size: int | None = None
    """Numbers of a concatenated position; default a quarter of ``d_model``, rounded up to an even number."""
    max_positions: int | None = None
    """Number of learned position vectors; default 512. A later position is an error."""
    max_distance: int | None = None
    """Distance from which on "relative" or "t5" positions are all the same; default 16 or 128."""
    num_heads: int = 4
    """Heads of every attention."""
    num_kv_heads: int | None = None
    """Heads of keys and values, each for ``num_heads / num_kv_heads`` heads of queries (grouped-query
    attention, Ainslie et al. 2023; 1 is multi-query, Shazeer 2019); default ``num_heads``."""
    head_size: int | None = None
    """Width of the queries and keys of a head; default ``d_model / num_heads``."""
    value_size: int | None = None
    """Width of the values of a head; default that of its keys."""
    projections: Projections = "separate"
    """Matrices W_Q, W_K and W_V ("separate"), in self-attention W_K = W_Q ("shared-qk": Kitaev et al. 2020,
    section 2, without their mask of a token itself), or neither these nor W_O ("none"): one head whose
    queries, keys and values are the states themselves."""
    attention_dropout: float = 0.0
    """Dropout probability of attention weights; not in the paper, and slow on a CPU."""
    attention_kind: AttentionKind = "scaled"
    """Weights softmax(Q K^T / sqrt(E)) ("scaled"), softmax(Q K^T) ("unscaled"), or 1 at the largest score and
    0 elsewhere, with the gradient of "scaled" ("hard"). Or, without softmax, phi(Q) phi(K)^T over the sums of
    its rows, phi(x) = elu(x) + 1 ("linear", Katharopoulos et al. 2020). Its time is linear in the length,
    unless a mask other than "full" needs every pair; positions must be those of embeddings."""
    qk_norm: bool = False
    """Whether softmax scores are g q . k / (|q| |k|), g being learned, in place of q . k / sqrt(E), so that
    they are bounded (Henry et al. 2020, https://arxiv.org/abs/2010.04245)."""
    encoder_mask: str = "full"
    """Which source positions a source position may attend to: "full", "causal" (up to itself), "window:W" (at
    most W positions away), or a file ``NAME.npy`` of zeros and ones, M[i, j]."""
    decoder_mask: str = "full"
    """The same for target positions, which never attend to later ones: "full" is causal already."""
    cross_mask: str = "full"
    """The same for target position i and source position j. "window:W" is centred on the last source token
    for all later target positions."""
    d_model: int = 256
    """Width of embeddings, states and sublayer outputs; must be even for sinusoidal positions."""
    ffn_size: int = 1024
    """Width inside the feed-forward sublayer."""
    dropout: float = 0.1
    """Dropout probability of embeddings and sublayer outputs (Vaswani et al. 2017, section 5.4)."""
    word_dropout: float = 0.0
    """Probability that the whole embedding of a token is replaced by zeros (Sennrich et al. 2016, WMT)."""
    activation_dropout: float = 0.0
    """Dropout probability inside the feed-forward sublayer, after its activation (Vaswani et al. 2018)."""
    norm: Norm = "pre"
    """Normalise each sublayer's input, and the last output ("pre"), each residual sum ("post"), or nothing
    ("none")."""
    norm_kind: NormKind = "layer"
    """LayerNorm, or RMSNorm, which divides by the root mean square (Zhang and Sennrich 2019)."""
    activation: Activation = "relu"
    """Activation between the matrices of the feed-forward sublayer; "swiglu" has three (Shazeer 2020)."""
    bias: bool = True
    """Whether linear layers and LayerNorm add a learned bias; as ``bias`` of torch's Transformer layers."""
    tie: Tie = "output"
    """Matrices shared: none, target embedding and output layer, or both of these and the source embedding."""

    def __post_init__(self) -> None:
        check_fields(self)
        rule, d_model = partial(check_rule, self), self.d_model
        for name in ("encoder_mask", "decoder_mask", "cross_mask"):
            rule(name, is_pattern(getattr(self, name)), f"must be {FORMS}")
        rule("decoder_mask", self.decoder_mask != "causal", "has no effect: a decoder is causal")
        is_divided = self.head_size is not None or d_model % self.num_heads == 0
        for name in ("num_heads", "d_model"):
            sizes = f"d_model ({d_model}) must be a multiple of num_heads ({self.num_heads})"
            rule(name, is_divided, f"does not fit: {sizes}, unless head_size is set")
        concatenates, learns = self.positions.startswith("concat"), self.positions.endswith("learned")
        rule("position_size", concatenates, 'needs positions "concat" or "concat-learned"')
        size = self.concatenated_size
        fits = not concatenates or (size < d_model and (learns or size % 2 == 0))
        rule("position_size", fits, f"must be below d_model ({d_model}), and even for sinusoids")
        rule("max_positions", learns, 'needs positions "learned" or "concat-learned"')
        has_limit = self.positions in ("relative", "t5")
        rule("max_distance", has_limit, 'needs positions "relative" or "t5"')
        is_far = self.positions != "t5" or self.distance_limit > BUCKETS // 2
        rule("max_distance", is_far, f"must be above {BUCKETS // 2}: each distance below has its own bias")
        has_waves = self.positions in ("sinusoidal", "network")
        rule("d_model", not has_waves or d_model % 2 == 0, "must be even, for sine and cosine")
        has_pairs = self.positions != "rotary" or self.query_size % 2 == 0
        rule("positions", has_pairs, f"turns pairs: the size of a head must be even, not {self.query_size}")
        is_linear, is_relative = self.attention_kind == "linear", self.positions == "relative"
        in_scores = is_linear and self.positions in IN_ATTENTION
        needs_softmax = 'needs a softmax, which attention_kind "linear" does not have'
        rule("positions", not in_scores, f'{needs_softmax}: use those of embeddings, such as "sinusoidal"')
        rule("attention_dropout", not is_linear, f"{needs_softmax}: use 0")
        is_scaled = self.attention_kind in ("scaled", "hard")
        rule("qk_norm", is_scaled, 'needs attention_kind "scaled" or "hard"')
        rule("qk_norm", not is_relative, 'needs positions other than "relative"')
        divides, is_single = self.num_heads % self.kv_heads == 0, self.kv_heads == self.num_heads
        rule("num_kv_heads", divides, f"must divide num_heads ({self.num_heads})")
        rule("num_kv_heads", is_single or not is_linear, needs_softmax)
        rule("num_kv_heads", is_single or not is_relative, 'needs positions other than "relative"')
        is_shared, is_bare = self.projections == "shared-qk", self.projections == "none"
        rule("num_kv_heads", is_single or not is_shared, 'must be num_heads with projections "shared-qk"')
        rule("projections", not is_bare or self.num_heads == 1, "needs num_heads 1: all would be alike")
        for name in ("head_size", "value_size"):
            rule(name, not is_bare, 'has no effect with projections "none": states are as wide as d_model')
        rule("norm_kind", self.norm != "none", 'has no effect with norm "none"')

    @property
    def query_size(self) -> int:
        """Width of a head's queries and keys."""
        return self.head_size or self.d_model // self.num_heads

    @property
    def attention_size(self) -> int:
        """Width of the queries of all heads."""
        return self.num_heads * self.query_size

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def keys_values_sizes(self) -> list[int]:
        """Width of the keys of all their heads together, and that of the values."""
        return [self.kv_heads * self.query_size, self.kv_heads * (self.value_size or self.query_size)]

    @property
    def values_size(self) -> int:
        """Width of the contexts of all heads together."""
        return self.num_heads * (self.value_size or self.query_size)

    @property
    def distance_limit(self) -> int:
        """Distance k from which on relative positions are all the same."""
        return self.max_distance or (T5_DISTANCE if self.positions == "t5" else MAX_DISTANCE)

    @property
    def concatenated_size(self) -> int:
        """Width of a concatenated position: as given, or a quarter of ``d_model``, even."""
        return self.position_size or 2 * -(-self.d_model // 8)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """Options of the encoder-decoder of Vaswani et al. 2017, table 3."""

    encoder_layers: int = 3
    """Number of encoder layers."""
    decoder_layers: int = 3
    """Number of decoder layers."""


@dataclass(frozen=True, kw_only=True)
class DecoderOnlyConfig(LayerConfig):
    """Options of a model with a single stack: decoder-only translation, or a language model."""

    num_layers: int = 6
    """Number of layers."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(DecoderOnlyConfig):
    """Options of a ``LanguageModel`` in which nothing is for a source, which it lacks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("encoder_mask", "cross_mask"):
            check_rule(self, name, False, "has no effect in a language model, which has no source")
        has_source = 'shares a source embedding, which a language model lacks: use "output"'
        check_rule(self, "tie", self.tie != "all", has_source)
