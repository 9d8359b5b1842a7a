"""Sizes and options of the Transformer, checked when a config is made."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
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
        for broken, message in self.rules():
            if broken:
                raise ValueError(message)

    def rules(self) -> Iterator[tuple[bool, str]]:
        """List what cannot be combined: whether it is, and what to say then."""
        for name in ("encoder_mask", "decoder_mask", "cross_mask"):
            yield not is_pattern(text := getattr(self, name)), f"{name} must be {FORMS}, got {text!r:.80}"
        d_model, positions = self.d_model, f'positions "{self.positions}"'
        yield (
            self.head_size is None and d_model % self.num_heads != 0,
            f"d_model ({d_model}) must be a multiple of num_heads ({self.num_heads}), unless head_size says "
            "how wide a head is",
        )
        concatenates, learns = self.positions.startswith("concat"), self.positions.endswith("learned")
        for name, has_effect, needs in (
            ("position_size", concatenates, '"concat" or "concat-learned"'),
            ("max_positions", learns, '"learned" or "concat-learned"'),
            ("max_distance", self.positions in ("relative", "t5"), '"relative" or "t5"'),
        ):
            yield (
                getattr(self, name) is not None and not has_effect,
                f"{name} has no effect with {positions}: it needs {needs}",
            )
        yield (
            self.positions == "t5" and self.distance_limit <= BUCKETS // 2,
            f'max_distance must be above {BUCKETS // 2} with positions "t5": each distance below that has a '
            f"bias of its own, got {self.max_distance}",
        )
        has_waves = self.positions in ("sinusoidal", "network")
        yield has_waves and d_model % 2 == 1, f"d_model must be even, for sine and cosine, got {d_model}"
        odd = self.positions == "rotary" and self.query_size % 2 == 1
        yield odd, f'positions "rotary" turn pairs: the size of a head must be even, got {self.query_size}'
        size = self.concatenated_size
        yield (
            concatenates and (size >= d_model or (not learns and size % 2 == 1)),
            f"position_size must be below d_model ({d_model}), and even for sinusoids, got {size}",
        )
        yield self.decoder_mask == "causal", 'decoder_mask "causal" has no effect: a decoder is causal'
        is_linear = self.attention_kind == "linear"
        yield (
            is_linear and self.positions in IN_ATTENTION,
            f'{positions} change softmax scores, which attention_kind "linear" does not have: use positions '
            'in the embeddings, such as "sinusoidal"',
        )
        yield (
            is_linear and self.attention_dropout > 0,
            f"attention_dropout ({self.attention_dropout}) drops weights, which attention_kind "
            '"linear" does not compute: use 0',
        )
        yield (
            self.qk_norm and (self.attention_kind not in ("scaled", "hard") or self.positions == "relative"),
            'qk_norm needs attention_kind "scaled" or "hard", and positions other than "relative"',
        )
        groups = self.kv_heads != self.num_heads
        yield (
            self.num_heads % self.kv_heads != 0,
            f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.kv_heads})",
        )
        whole = is_linear or self.positions == "relative"
        yield groups and whole, 'num_kv_heads needs a softmax, and positions other than "relative"'
        plain, is_bare = f'projections "{self.projections}"', self.projections == "none"
        yield groups and self.projections == "shared-qk", f"num_kv_heads must be num_heads with {plain}"
        yield is_bare and self.num_heads > 1, f"{plain} need num_heads 1: all heads would be alike"
        for name in ("head_size", "value_size"):
            yield (
                is_bare and getattr(self, name) is not None,
                f"{name} has no effect with {plain}: states are as wide as d_model",
            )
        no_norm = self.norm == "none" and self.norm_kind != "layer"
        yield no_norm, f'norm_kind "{self.norm_kind}" has no effect with norm "none"'

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

    def rules(self) -> Iterator[tuple[bool, str]]:
        """List options that would have no effect, too."""
        yield from super().rules()
        for name in ("encoder_mask", "cross_mask"):
            yield (
                getattr(self, name) != "full",
                f"{name} has no effect in a language model, which has no source",
            )
        message = 'tie "all" shares a source embedding, which a language model lacks: use "output"'
        yield self.tie == "all", message
