"""Configuration of a recurrent encoder-decoder, of its attention, and of a recurrent language model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from .cells import MIN_CELLS
from .normalisers import DEFAULT_REINFORCE, NORMALISERS, ReinforceConfig
from .scopes import SCOPES
from .scores import SCORES

Placement = Literal["before", "after"]
Cell = Literal["lstm", "gru", "layer-norm-lstm", "min-gru", "min-lstm"]
Direction = Literal["both", "forward", "backward", "both-bottom"]
ContextTo = Literal["first", "all"]
MAX_LAYERS = 1_000
"""More layers than any recurrent model has; each takes time to build, however narrow it is."""
Side = Literal["none", "encoder", "decoder", "both"]
Readout = Literal["tanh", "maxout", "none"]
DecoderStart = Literal["bridge", "last", "zeros"]
Tie = Literal["none", "output", "all"]


def _check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    if value not in (names := tuple(allowed)):
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")


def _check_size(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Attention of a recurrent decoder: score x scope x normaliser x placement.

    Options that would have no effect are rejected by a ValueError.
    """

    score: str = "additive"
    """Score of a decoder state and an encoder state, a key of ``SCORES``."""
    scope: str = "global"
    """Source positions that are visible, a key of ``SCOPES``: all of them ("global"), or a window around the
    query's own position ("local-m") or around a predicted one ("local-p")."""
    window: int | None = None
    """Half-width D of the window of a local scope, in source positions; default 10."""
    normaliser: str = "softmax"
    """From scores to weights, a key of ``NORMALISERS``: average all visible positions ("softmax") or those
    of the highest scores ("sparsemax", "entmax-1.5"), select one, trained with the straight-through gradient
    or by REINFORCE, or read from left to right ("monotonic")."""
    temperature: float = 1.0
    """Divides the scores before the normaliser: weights are sharper below 1 and more even above."""
    reinforce: ReinforceConfig = DEFAULT_REINFORCE
    """Baseline, reward and entropy of normaliser "reinforce"."""
    placement: Placement = "before"
    """Attend from s(t-1) before the cell (Bahdanau et al. 2015) or from h(t) after it (Luong et al. 2015)."""
    input_feeding: bool = False
    """Concatenate the attentional vector with the next input (Luong et al. 2015, section 3.3); only with
    placement "after"."""
    query_layer: int | None = None
    """Decoder layer whose output attends, 1 being the bottom one (Wu et al. 2016); default the top one."""
    context_to: ContextTo = "first"
    """Layers that read the context: the bottom one, or all (Wu et al. 2016); only with placement "before"."""
    context_to_readout: bool = True
    """Whether the readout reads the context too; placement "after" needs it."""
    num_heads: int = 1
    """Number of heads, each with its own weights and values; more than 1 with score "additive" (or "concat"),
    "general" or "scaled-dot"."""
    attention_size: int | None = None
    """Inner size A: hidden layer (additive, concat), keys and values of all heads together (scaled-dot), or
    rank (static-factorised, dynamic-factorised); default hidden_size."""
    kernel_size: int | None = None
    """Width of the filters over the previous weights (location-aware), odd, in words; default 11."""
    max_source: int | None = None
    """Number of source positions of a location-based score; later words are ignored; default 100."""
    max_target: int | None = None
    """Number of target positions of a static score; later ones use the last; default 100."""

    def __post_init__(self) -> None:
        """Reject invalid combinations and options that would have no effect."""
        _check_choice("score", self.score, SCORES)
        _check_choice("scope", self.scope, SCOPES)
        _check_choice("normaliser", self.normaliser, NORMALISERS)
        _check_choice("placement", self.placement, get_args(Placement))
        _check_choice("context_to", self.context_to, get_args(ContextTo))
        self._check_sizes()
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be positive and finite, got {self.temperature}")
        if self.normaliser != "reinforce" and self.reinforce != DEFAULT_REINFORCE:
            raise ValueError(
                "baseline, reward_weight and entropy_weight have no effect with normaliser "
                f'"{self.normaliser}": use "reinforce"'
            )
        if self.input_feeding and self.placement == "before":
            raise ValueError(
                'input_feeding needs placement "after": with "before" the cell reads the context anyway'
            )
        if self.placement == "after" and (self.context_to != "first" or not self.context_to_readout):
            raise ValueError(
                'context_to "all" and context_to_readout false need placement "before": with "after" only '
                "the readout reads the context"
            )
        if NORMALISERS[self.normaliser].is_hard and SCOPES[self.scope].scales_weights:
            raise ValueError(
                f'normaliser "{self.normaliser}" cannot choose by scope "{self.scope}", whose weights do not '
                'sum to 1: use "global" or "local-m"'
            )

    def _check_sizes(self) -> None:
        """Reject sizes below 1, and sizes of parts that this attention does not have."""
        score, scope = SCORES[self.score], SCOPES[self.scope]
        _check_size("num_heads", self.num_heads)
        if self.query_layer is not None:
            _check_size("query_layer", self.query_layer)
        if self.num_heads > 1 and not score.supports_heads:
            supported = " or ".join(f'"{name}"' for name, other in SCORES.items() if other.supports_heads)
            raise ValueError(f'num_heads above 1 needs score {supported}: "{self.score}" has one head')
        for name, has_effect, reason in (
            ("window", scope.has_window, f'scope "{self.scope}": it sees all positions'),
            ("attention_size", score.has_inner_size, f'score "{self.score}": it has no inner width'),
            ("kernel_size", score.has_kernel, f'score "{self.score}": it has no filters'),
            ("max_source", score.needs_max_source, f'score "{self.score}": it takes sources of any length'),
            ("max_target", score.needs_max_target, f'score "{self.score}": it takes targets of any length'),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not has_effect:
                raise ValueError(f"{name} has no effect with {reason}")
            _check_size(name, value)
        if self.kernel_size is not None and self.kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size must be odd, got {self.kernel_size}: filters are centred on a position"
            )

    def inner_size(self, query_size: int) -> int:
        """Return the inner size A of a score that has one, for decoder states of ``query_size``."""
        return query_size if self.attention_size is None else self.attention_size


@dataclass(frozen=True, kw_only=True)
class RegularisationConfig:
    """Dropouts of RNNs beside ``Seq2SeqConfig.dropout``; by default none."""

    recurrent_dropout: float = 0.0
    """Probability to drop a unit of a layer's own previous state, at all steps alike (Gal and Ghahramani
    2016). Runs all layers in a slow loop over time steps in training."""
    variational: bool = False
    """Whether ``dropout`` on embeddings and between layers drops the same units at all steps (Gal and
    Ghahramani 2016)."""
    word_dropout: float = 0.0
    """Probability to drop all units of the embedding of a token, on both sides (Sennrich et al. 2016)."""

    def __post_init__(self) -> None:
        """Reject values that are no probability below 1."""
        for name in ("recurrent_dropout", "word_dropout"):
            _check_probability(name, getattr(self, name))

    @property
    def is_off(self) -> bool:
        """Whether nothing is dropped."""
        return self == RegularisationConfig()


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """Architecture and sizes of a ``Seq2Seq``.

    Every accepted combination can be built and trained; options that would have no effect are rejected by a
    ValueError.
    """

    attention: AttentionConfig | None = AttentionConfig()
    """Attention to the source; None for an encoder-decoder without attention (Sutskever et al. 2014)."""
    cell: Cell = "lstm"
    """Recurrent cell of encoder and decoder; "layer-norm-lstm" (Ba et al. 2016) runs in a slow loop over time
    steps. The gates of "min-gru" and "min-lstm" (Feng et al. 2024) do not read the state, so that in training
    all time steps run in parallel; in a decoder only with placement "after" without input feeding and with a
    score and normaliser that do not read earlier weights, else step by step."""
    embedding_size: int = 256
    """Size of the source and target embeddings."""
    hidden_size: int = 512
    """H, the size of a decoder state."""
    encoder_size: int | None = None
    """E, the size of an encoder state, both directions together; default hidden_size."""
    num_layers: int = 1
    """Number of recurrent layers of the encoder and also of the decoder; residual from the third on."""
    pre_norm: bool = False
    """Whether RMSNorm precedes each layer of a minGRU or minLSTM above the bottom one, and follows the top
    one, with residual connections from the second layer on, as in a pre-norm Transformer. The score of such
    states should be scaled ("scaled-dot")."""
    encoder_layers: int | None = None
    """Number of recurrent layers of the encoder if not ``num_layers``."""
    direction: Direction = "both"
    """Direction in which the encoder reads; "backward" reverses the source (Sutskever et al. 2014). With
    "both-bottom" the bottom layer reads in both directions, each of size E, and all others from the left (Wu
    et al. 2016)."""
    decoder_start: DecoderStart | None = None
    """Initial state of the decoder: tanh(W [last encoder states] + b) ("bridge", Bahdanau et al. 2015), the
    last encoder states themselves ("last", Sutskever et al. 2014), or 0 ("zeros"); default "bridge" with
    attention, "last" without."""
    dropout: float = 0.2
    """Dropout probability on the embeddings, between recurrent layers and on the readout."""
    regularisation: RegularisationConfig = RegularisationConfig()
    """Dropouts of other kinds."""
    self_attention: Side = "none"
    """RNN that also attends to its own earlier states (compare Cheng et al. 2016)."""
    feed_summary: bool = False
    """Feed the initial state of the top layer at every step too (Cho et al. 2014); only without attention."""
    readout: Readout = "tanh"
    """Activation of the layer between state and output layer (maxout: Bahdanau et al. 2015). With "none"
    there is no such layer: the output layer reads the state, and the context (``context_to_readout``)."""
    tie: Tie = "none"
    """Share one matrix between target embedding and output layer ("output"), and source embedding ("all")."""

    def __post_init__(self) -> None:
        """Reject invalid combinations and options that would have no effect."""
        for name, allowed in (
            ("cell", Cell),
            ("direction", Direction),
            ("self_attention", Side),
            ("readout", Readout),
            ("tie", Tie),
        ):
            _check_choice(name, getattr(self, name), get_args(allowed))
        _check_choice("decoder_start", self.start, get_args(DecoderStart))
        _check_probability("dropout", self.dropout)
        if self.regularisation.variational and not self.dropout:
            raise ValueError("variational has no effect with dropout 0: it says what dropout drops")
        self._check_sizes()
        if self.cell in MIN_CELLS and self.regularisation.recurrent_dropout:
            raise ValueError(
                f'recurrent_dropout has no effect with cell "{self.cell}", whose gates do not read the '
                'state: use "lstm", "gru" or "layer-norm-lstm"'
            )
        if self.pre_norm:
            self._check_pre_norm()
        if self.attention is None:
            self._check_without_attention()
        elif self.feed_summary:
            raise ValueError(
                "feed_summary needs attention None: with attention a context is fed at every step anyway"
            )
        else:
            self._check_attention(self.attention)
            SCORES[self.attention.score].check_sizes(self.hidden_size, self.states_size, self.attention)
        if self.readout == "none" and self.tie != "none" and self.embedding_size != self.output_size:
            raise ValueError(
                f'tie "{self.tie}" with readout "none" needs embeddings as wide as the input of the output '
                f'layer, got {self.embedding_size} and {self.output_size}: use tie "none"'
            )

    def _check_attention(self, attention: AttentionConfig) -> None:
        """Reject parts of an attention that this decoder does not have."""
        layer, layers = attention.query_layer, self.num_layers
        if layer is not None and layer > layers:
            raise ValueError(f"query_layer must be at most num_layers ({layers}), got {layer}")
        if self.queries_below_top and self.self_attention in ("decoder", "both"):
            raise ValueError(
                f"query_layer {layer} is below the top layer ({layers}), whose outputs self_attention "
                f'"{self.self_attention}" combines: use self_attention "none", or leave query_layer out'
            )
        if attention.context_to == "all" and layers == 1:
            raise ValueError('context_to "all" has no effect with num_layers 1: use "first"')
        if self.readout == "none" and attention.input_feeding:
            raise ValueError('input_feeding needs a readout, whose output is fed: use readout "tanh"')

    def _check_pre_norm(self) -> None:
        """Reject what norms between layers cannot be combined with."""
        if self.cell not in MIN_CELLS:
            cells = " or ".join(f'"{cell}"' for cell in MIN_CELLS)
            raise ValueError(f'pre_norm needs cell {cells}, got "{self.cell}": use pre_norm false')
        if self.direction == "both-bottom":
            raise ValueError(
                'pre_norm needs layers of one width, not direction "both-bottom": use "both", or pre_norm '
                "false"
            )
        if self.queries_below_top:
            raise ValueError(
                "pre_norm needs the top layer to attend, whose output is normalised: leave query_layer out, "
                "or use pre_norm false"
            )

    def _check_sizes(self) -> None:
        """Reject sizes below 1, and odd sizes that have to be halved."""
        for name in ("embedding_size", "hidden_size", "num_layers"):
            _check_size(name, getattr(self, name))
        _check_size("encoder_layers", self.encoder_depth)
        for name, layers in (("num_layers", self.num_layers), ("encoder_layers", self.encoder_depth)):
            if layers > MAX_LAYERS:
                raise ValueError(f"{name} must be at most {MAX_LAYERS:,}, got {layers:,}")
        if self.direction == "both-bottom" and self.encoder_depth == 1:
            raise ValueError('direction "both-bottom" needs more than one layer in the encoder: use "both"')
        if self.direction == "both-bottom" and self.self_attention in ("encoder", "both"):
            raise ValueError(
                f'self_attention "{self.self_attention}" needs layers of one direction or two, not '
                'direction "both-bottom": use "both"'
            )
        states = "hidden_size" if self.encoder_size is None else "encoder_size"
        _check_size(states, self.states_size)
        if self.direction == "both" and self.states_size % 2:
            raise ValueError(
                f'{states} ({self.states_size}) must be even with direction "both": each direction has half '
                "of it"
            )
        if self.readout == "maxout" and self.tie == "none" and self.hidden_size % 2:
            raise ValueError(
                f'hidden_size ({self.hidden_size}) must be even with readout "maxout", which keeps one of '
                "every two units"
            )
        if self.start == "last" and self.encoder_depth != self.num_layers:
            raise ValueError(
                f"encoder_layers ({self.encoder_layers}) must be num_layers ({self.num_layers}) with "
                'decoder_start "last": the last encoder states are the first decoder states; "bridge" takes '
                "any number"
            )
        if self.start == "last" and self.states_size != self.hidden_size:
            raise ValueError(
                f"encoder_size ({self.encoder_size}) must be hidden_size ({self.hidden_size}) with "
                'decoder_start "last": the last encoder states are the first decoder states; "bridge" takes '
                "any size"
            )

    def _check_without_attention(self) -> None:
        """Reject options that need attention."""
        if self.start == "zeros":
            raise ValueError(
                'decoder_start "zeros" needs an attention: without one the decoder sees the source only '
                'through its initial state; use "last" or "bridge"'
            )
        if self.self_attention in ("encoder", "both"):
            raise ValueError(
                f'self_attention "{self.self_attention}" needs an attention: without one the decoder sees '
                'only the last states of the recurrence; use "decoder" or "none"'
            )

    @property
    def encoder_depth(self) -> int:
        """Number of layers of the encoder."""
        return self.num_layers if self.encoder_layers is None else self.encoder_layers

    @property
    def queries_below_top(self) -> bool:
        """Whether a layer below the top one of the decoder attends."""
        layer = None if self.attention is None else self.attention.query_layer
        return layer is not None and layer < self.num_layers

    @property
    def has_cell_state(self) -> bool:
        """Whether a layer has a cell state c, as LSTMs have."""
        return self.cell in ("lstm", "layer-norm-lstm")

    @property
    def start(self) -> str:
        """The initial state of the decoder, with the default filled in."""
        if self.decoder_start is None:
            return "last" if self.attention is None else "bridge"
        return self.decoder_start

    @property
    def start_size(self) -> int:
        """Size of the initial states of all layers of the decoder together; an LSTM has h and c."""
        return self.num_layers * self.hidden_size * (2 if self.has_cell_state else 1)

    @property
    def states_size(self) -> int:
        """E, the size of an encoder state."""
        return self.hidden_size if self.encoder_size is None else self.encoder_size

    @property
    def output_size(self) -> int:
        """D, the size of the readout.

        Without a readout it is the size of [s; c] or s. A tied output layer needs the size of an embedding.
        Otherwise maxout halves the size of the state, as in Bahdanau et al. 2015 (1,000 to 500), and tanh
        keeps it.
        """
        if self.readout == "none":
            attention, width = self.attention, 0
            if attention is not None and attention.context_to_readout:
                score = SCORES[attention.score]
                width = score.context_width(self.hidden_size, self.states_size, attention)
            return self.hidden_size + width
        if self.tie != "none":
            return self.embedding_size
        return self.hidden_size // 2 if self.readout == "maxout" else self.hidden_size


@dataclass(frozen=True, kw_only=True)
class RecurrentLanguageModelConfig:
    """Architecture and sizes of a ``RecurrentLanguageModel``: the options of a decoder without a source.

    Every accepted combination can be built and trained; options that would have no effect are rejected by a
    ValueError.
    """

    cell: Cell = "lstm"
    """Recurrent cell, as in ``Seq2SeqConfig``; all cells of torch, minGRU and minLSTM train all steps at
    once."""
    embedding_size: int = 256
    """Size of the embeddings."""
    hidden_size: int = 256
    """H, the size of a state."""
    num_layers: int = 2
    """Number of recurrent layers; residual from the third on."""
    dropout: float = 0.2
    """Dropout probability on the embeddings, between recurrent layers and before the output layer."""
    regularisation: RegularisationConfig = RegularisationConfig()
    """Dropouts of other kinds."""
    readout: Readout = "none"
    """Activation of a layer between [state; embedding] and output layer; with "none" there is no such layer:
    the output layer reads the state (Zaremba et al. 2014)."""
    tie: Tie = "output"
    """Share one matrix between embedding and output layer ("output", Press and Wolf 2017), or none."""

    def __post_init__(self) -> None:
        """Reject invalid combinations and options that would have no effect."""
        if self.tie == "all":
            raise ValueError(
                'tie "all" shares a source embedding, which a language model lacks: use "output"'
            )
        _ = self.decoder  # whose checks are those of the other options

    @property
    def decoder(self) -> Seq2SeqConfig:
        """Config of the decoder without attention, and so without a source, that the model is."""
        return Seq2SeqConfig(
            attention=None,
            cell=self.cell,
            embedding_size=self.embedding_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            direction="forward",
            decoder_start="last",
            dropout=self.dropout,
            regularisation=self.regularisation,
            readout=self.readout,
            tie=self.tie,
        )
