"""Configuration of a recurrent encoder-decoder, of its attention, and of a recurrent language model."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

from .min_rnn import MIN_CELLS
from .scores import SCORES

Scope = Literal["global", "local-m", "local-p"]
Normaliser = Literal["softmax", "sparsemax", "entmax-1.5", "straight-through", "reinforce", "monotonic"]
Baseline = Literal["learned", "moving-average"]
Placement = Literal["before", "after"]
Cell = Literal["lstm", "gru", "layer-norm-lstm", "min-gru", "min-lstm"]
Direction = Literal["both", "forward", "backward", "both-bottom"]
ContextTo = Literal["first", "all"]
Side = Literal["none", "encoder", "decoder", "both"]
Readout = Literal["tanh", "maxout", "none"]
DecoderStart = Literal["bridge", "last", "zeros"]
Tie = Literal["none", "output", "all"]


Rules = Iterator[tuple[bool, str]]
"""What cannot be combined: whether it is, and what to say then."""


def check_fields(config: Any) -> None:
    """Raise a ValueError for names that do not exist, sizes below 1 and dropouts outside [0, 1).

    Args:
        config: a dataclass; its types say what a field is.
    """
    for field in fields(config):
        name, kind, value = field.name, field.type, getattr(config, field.name)
        choices = [
            name for part in (kind, *get_args(kind)) if get_origin(part) is Literal for name in get_args(part)
        ]
        if choices and value not in (*choices, field.default):
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if kind in (int, int | None) and value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value}")


def check_rules(rules: Rules) -> None:
    """Raise a ValueError with the message of the first rule that is broken."""
    for is_broken, message in rules:
        if is_broken:
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig:
    """How samples of hard attention are trained: Xu et al. 2015, section 4.1; only with "reinforce"."""

    baseline: Baseline = "learned"
    """Reward that is expected before a choice: learned from the decoder state, or the moving average of all
    rewards, 0.9 times the old one plus 0.1 times the mean of the batch, of each of its parts where gradients
    are accumulated; each process has one of its own."""
    reward_weight: float = 1.0
    """lambda_r, the weight of the policy gradient."""
    entropy_weight: float = 0.0
    """lambda_e, the weight of the entropy of the choices, which training then raises."""

    def __post_init__(self) -> None:
        """Reject unknown baselines and weights that are negative or not finite."""
        check_fields(self)
        for name in ("reward_weight", "entropy_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")


DEFAULT_REINFORCE = ReinforceConfig()


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Attention of a recurrent decoder: score x scope x normaliser x placement.

    Options that would have no effect are rejected by a ValueError.
    """

    score: str = "additive"
    """Score of a decoder state and an encoder state, a key of ``SCORES``."""
    scope: Scope = "global"
    """Source positions that are visible: all of them ("global"), or a window around the
    query's own position ("local-m") or around a predicted one ("local-p")."""
    window: int | None = None
    """Half-width D of the window of a local scope, in source positions; default 10."""
    normaliser: Normaliser = "softmax"
    """From scores to weights: average all visible positions ("softmax") or those
    of the highest scores ("sparsemax", "entmax-1.5"), select one, trained with the straight-through gradient
    or by REINFORCE, or read from left to right ("monotonic")."""
    temperature: float = 1.0
    """Divides the scores before the normaliser: weights are sharper below 1 and more even above."""
    attention_warmup: int | None = None
    """Updates at the start of training in which all scores are 0, so that attention is uniform and its score
    untrained; default none. The first updates teach a language model only, and attention that moves meanwhile
    takes a direction by chance, which it may keep."""
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
        if self.score not in list(SCORES):
            raise ValueError(f"score must be one of {', '.join(SCORES)}, got {self.score!r}")
        check_fields(self)
        check_rules(self._rules())

    def _rules(self) -> Rules:
        score, of_score = SCORES[self.score], f'with score "{self.score}"'
        with_heads = " or ".join(f'"{name}"' for name, one in SCORES.items() if "num_heads" in one.options)
        yield (
            self.num_heads > 1 and "num_heads" not in score.options,
            f"num_heads above 1 has no effect {of_score}: it needs {with_heads}",
        )
        for name in ("attention_size", "kernel_size", "max_source", "max_target"):
            has_no_effect = getattr(self, name) is not None and name not in score.options
            yield has_no_effect, f"{name} has no effect {of_score}"
        has_no_effect = self.window is not None and self.scope == "global"
        yield has_no_effect, f'window has no effect with scope "{self.scope}": it sees all positions'
        even = self.kernel_size is not None and self.kernel_size % 2 == 0
        yield even, f"kernel_size must be odd, got {self.kernel_size}: filters are centred on a position"
        is_positive = 0 < self.temperature < float("inf")
        yield not is_positive, f"temperature must be positive and finite, got {self.temperature}"
        yield (
            self.normaliser != "reinforce" and self.reinforce != DEFAULT_REINFORCE,
            f'baseline, reward_weight and entropy_weight have no effect with normaliser "{self.normaliser}"',
        )
        before = self.placement == "before"
        yield (
            self.input_feeding and before,
            'input_feeding needs placement "after": the cell reads the context',
        )
        only_before = self.context_to != "first" or not self.context_to_readout
        yield (
            only_before and not before,
            'context_to "all" and context_to_readout false need placement "before"',
        )
        yield (
            self.scope == "local-p" and self.normaliser in ("straight-through", "reinforce", "monotonic"),
            f'normaliser "{self.normaliser}" cannot choose by scope "{self.scope}", whose weights do not '
            "sum to 1",
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
        check_fields(self)


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
        check_fields(self)
        check_rules(self._rules() if self.attention is None else self._rules_of_attention(self.attention))
        check_rules(self._rules_of_sizes())

    def _rules(self) -> Rules:
        start, own = self.start == "zeros", self.self_attention in ("encoder", "both")
        sees = "an attention: without one the decoder sees the last states of the encoder alone"
        yield start, f'decoder_start "zeros" needs {sees}; use "last" or "bridge"'
        yield own, f'self_attention "{self.self_attention}" needs {sees}; use "decoder" or "none"'

    def _rules_of_attention(self, attention: AttentionConfig) -> Rules:
        layer, layers = attention.query_layer, self.num_layers
        yield self.feed_summary, "feed_summary needs attention None: a context is fed at every step anyway"
        too_high = layer is not None and layer > layers
        yield too_high, f"query_layer must be at most num_layers ({layers}), got {layer}"
        yield (
            self.queries_below_top and self.self_attention in ("decoder", "both"),
            f"query_layer {layer} is below the top layer ({layers}), whose outputs self_attention "
            f'"{self.self_attention}" combines: use self_attention "none", or leave query_layer out',
        )
        to_one = attention.context_to == "all" and layers == 1
        yield to_one, 'context_to "all" has no effect with num_layers 1: use "first"'
        not_fed = self.readout == "none" and attention.input_feeding
        yield not_fed, 'input_feeding needs a readout, whose output is fed: use readout "tanh"'

    def _rules_of_sizes(self) -> Rules:
        settings, both_bottom = self.regularisation, self.direction == "both-bottom"
        has_no_effect = settings.variational and not self.dropout
        yield has_no_effect, "variational has no effect with dropout 0: it says what dropout drops"
        one_layer = both_bottom and self.encoder_depth == 1
        yield one_layer, 'direction "both-bottom" needs more than one layer in the encoder: use "both"'
        own = both_bottom and self.self_attention in ("encoder", "both")
        yield own, f'self_attention "{self.self_attention}" needs direction "both", "forward" or "backward"'
        states = "hidden_size" if self.encoder_size is None else "encoder_size"
        odd = self.direction == "both" and self.states_size % 2 == 1
        yield (
            odd,
            f'{states} ({self.states_size}) must be even with direction "both": half for each direction',
        )
        odd = self.readout == "maxout" and self.tie == "none" and self.hidden_size % 2 == 1
        yield odd, f'hidden_size ({self.hidden_size}) must be even with readout "maxout", which keeps half'
        for name, found, wanted, needed in (
            ("encoder_layers", self.encoder_depth, "num_layers", self.num_layers),
            ("encoder_size", self.states_size, "hidden_size", self.hidden_size),
        ):
            yield (
                self.start == "last" and found != needed,
                f'{name} ({found}) must be {wanted} ({needed}) with decoder_start "last": the last encoder '
                'states are the first decoder states; "bridge" takes any',
            )
        is_min = self.cell in MIN_CELLS
        has_no_effect = is_min and settings.recurrent_dropout > 0
        yield (
            has_no_effect,
            f'recurrent_dropout has no effect with cell "{self.cell}", which has no recurrent product',
        )
        other = self.pre_norm and not is_min
        yield other, f'pre_norm needs cell "min-gru" or "min-lstm", got "{self.cell}": use pre_norm false'
        yield self.pre_norm and both_bottom, 'pre_norm needs layers of one width, not direction "both-bottom"'
        below_top = self.pre_norm and self.queries_below_top
        yield (
            below_top,
            "pre_norm needs the top layer to attend, whose output is normalised: leave query_layer out",
        )
        if self.attention is not None:
            SCORES[self.attention.score].check_sizes(self.hidden_size, self.states_size, self.attention)
        yield (
            self.readout == "none" and self.tie != "none" and self.embedding_size != self.output_size,
            f'tie "{self.tie}" with readout "none" needs embeddings as wide as the input of the output '
            f'layer, got {self.embedding_size} and {self.output_size}: use tie "none"',
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
    def summary_size(self) -> int:
        """Size of the last states of all layers of the encoder together, from which the decoder starts."""
        return self.encoder_depth * self.states_size * (2 if self.has_cell_state else 1)

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
