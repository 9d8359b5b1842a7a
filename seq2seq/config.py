"""Configuration of a recurrent encoder-decoder, of its attention, and of a recurrent language model."""

import json
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, Self, get_args, get_origin

from .cells import MIN_CELLS
from .scores import SCORES

Normaliser = Literal["softmax", "sparsemax", "entmax-1.5", "straight-through", "reinforce", "monotonic"]
Cell = Literal["lstm", "gru", "rnn", "layer-norm-lstm", "min-gru", "min-lstm"]
Readout = Literal["tanh", "maxout", "none"]
Tie = Literal["none", "output", "all"]


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
        choices = [
            name for part in (kind, *get_args(kind)) if get_origin(part) is Literal for name in get_args(part)
        ]
        if choices and value not in (*choices, field.default):
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        least = 0 if field.default == 0 else 1
        if kind in (int, int | None) and value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value}")


def check_rule(config: Any, name: str, holds: bool, rule: str) -> None:
    """Raise a ValueError if a setting has another value than its default and breaks a rule."""
    value = getattr(config, name)
    if not holds and value != getattr(type(config), name):
        raise ValueError(f"{name} {json.dumps(value, default=repr)} {rule}")


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(Config):
    """Training of hard attention by samples: Xu et al. 2015, section 4.1; only with "reinforce"."""

    baseline: Literal["learned", "moving-average"] = "learned"
    """Reward that is expected before a choice: learned from the decoder state, or the moving average of all
    rewards, 0.9 times the old one plus 0.1 times the mean of the batch, of each of its parts where gradients
    are accumulated; each process has one of its own."""
    reward_weight: float = 1.0
    """lambda_r, the weight of the policy gradient."""
    entropy_weight: float = 0.0
    """lambda_e, the weight of the entropy of the choices, which training then raises."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("reward_weight", "entropy_weight"):
            is_finite = 0 <= getattr(self, name) < float("inf")
            check_rule(self, name, is_finite, "must be at least 0 and finite")


DEFAULT_REINFORCE = ReinforceConfig()


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Config):
    """Attention of a recurrent decoder: score x scope x normaliser x placement."""

    score: str = "additive"
    """Score of a decoder state and an encoder state; a plug-in can add one."""
    scope: Literal["global", "local-m", "local-p"] = "global"
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
    attention_warmup: int = 0
    """Updates at the start of training in which all scores are 0, so that attention is uniform and its score
    untrained. The first updates teach a language model only, and attention that moves meanwhile
    takes a direction by chance, which it may keep."""
    reinforce: ReinforceConfig = DEFAULT_REINFORCE
    """Baseline, reward and entropy of normaliser "reinforce"."""
    placement: Literal["before", "after"] = "before"
    """Attend from s(t-1) before the cell (Bahdanau et al. 2015) or from h(t) after it (Luong et al. 2015)."""
    input_feeding: bool = False
    """Concatenate the attentional vector with the next input (Luong et al. 2015, section 3.3); only with
    placement "after"."""
    query_layer: int | None = None
    """Decoder layer whose output attends, 1 being the bottom one (Wu et al. 2016); default the top one."""
    context_to: Literal["first", "all"] = "first"
    """Layers that read the context: the bottom one, or all (Wu et al. 2016); only with placement "before"."""
    context_to_readout: bool = True
    """Whether the readout reads the context too; placement "after" needs it."""
    num_heads: int = 1
    """Number of heads, each with its own weights and values; more than 1 with score "additive" (or "concat"),
    "general" or "scaled-dot"."""
    map_values: bool = False
    """Whether a matrix maps encoder states to the values that one head averages, as wide as keys; those of
    several heads and of score "scaled-dot" are mapped always."""
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
        rule = partial(check_rule, self)
        rule("score", self.score in list(SCORES), f"must be one of {', '.join(SCORES)}")
        check_fields(self)
        for name in ("num_heads", "map_values", "attention_size", "kernel_size", "max_source", "max_target"):
            fitting = [key for key, score in SCORES.items() if name in score.options]
            rule(name, self.score in fitting, f'needs score {" or ".join(fitting)}, got "{self.score}"')
        rule(
            "map_values",
            self.num_heads == 1,
            "has no effect with several heads, whose values are mapped anyway",
        )
        rule("kernel_size", (self.kernel_size or 1) % 2 == 1, "must be odd: filters have a centre")
        rule("window", self.scope != "global", 'needs a local scope: "global" sees all positions')
        rule("temperature", 0 < self.temperature < float("inf"), "must be positive and finite")
        for field in fields(self.reinforce):
            is_used = self.normaliser == "reinforce"
            check_rule(self.reinforce, field.name, is_used, 'needs normaliser "reinforce"')
        before = self.placement == "before"
        rule("input_feeding", not before, 'needs placement "after": the cell reads the context')
        rule("context_to", before, 'needs placement "before"')
        rule("context_to_readout", before, 'needs placement "before"')
        is_even = self.scope != "local-p" and self.normaliser not in ("straight-through", "monotonic")
        rule("attention_warmup", is_even, "needs a normaliser that makes equal scores equal weights")
        is_sum = self.scope != "local-p" or self.normaliser in ("softmax", "sparsemax", "entmax-1.5")
        rule("normaliser", is_sum, 'cannot choose by scope "local-p", whose weights do not sum to 1')

    def inner_size(self, query_size: int) -> int:
        """Return the inner size A of a score that has one, for decoder states of ``query_size``."""
        return query_size if self.attention_size is None else self.attention_size


@dataclass(frozen=True, kw_only=True)
class RegularisationConfig(Config):
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
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(Config):
    """Architecture and sizes of a ``Seq2Seq``; a ValueError rejects options that would have no effect."""

    attention: AttentionConfig | None = AttentionConfig()
    """Attention to the source; None for an encoder-decoder without attention (Sutskever et al. 2014)."""
    cell: Cell = "lstm"
    """Recurrent cell of encoder and decoder; "rnn" is h' = tanh(W x + U h + b) (Elman 1990), without gates;
    "layer-norm-lstm" (Ba et al. 2016) runs in a slow loop over time steps. The gates of "min-gru" and
    "min-lstm" (Feng et al. 2024) do not read the state, so that in training all time steps run in parallel;
    in a decoder only with placement "after" without input feeding and with a score and normaliser that do not
    read earlier weights, else step by step."""
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
    direction: Literal["both", "forward", "backward", "both-bottom"] = "both"
    """Direction in which the encoder reads; "backward" reverses the source (Sutskever et al. 2014). With
    "both-bottom" the bottom layer reads in both directions, each of size E, and all others from the left (Wu
    et al. 2016)."""
    decoder_start: Literal["bridge", "last", "zeros"] | None = None
    """Initial state of the decoder: tanh(W [last encoder states] + b) ("bridge", Bahdanau et al. 2015), the
    last encoder states themselves ("last", Sutskever et al. 2014), or 0 ("zeros"); default "bridge" with
    attention, "last" without."""
    dropout: float = 0.2
    """Dropout probability on the embeddings, between recurrent layers and on the readout."""
    regularisation: RegularisationConfig = RegularisationConfig()
    """Dropouts of other kinds."""
    self_attention: Literal["none", "encoder", "decoder", "both"] = "none"
    """RNN that also attends to its own earlier states (compare Cheng et al. 2016)."""
    feed_summary: bool = False
    """Feed the initial state of the top layer at every step too (Cho et al. 2014); only without attention."""
    readout: Readout = "tanh"
    """Activation of the layer between state and output layer (maxout: Bahdanau et al. 2015). With "none"
    there is no such layer: the output layer reads the state, and the context (``context_to_readout``)."""
    tie: Tie = "none"
    """Share one matrix between target embedding and output layer ("output"), and source embedding ("all")."""

    def __post_init__(self) -> None:
        check_fields(self)
        attends, layers, attention = self.self_attention, self.num_layers, self.attention
        rule, both_bottom = partial(check_rule, self), self.direction == "both-bottom"
        if attention is None:
            rule("decoder_start", self.start != "zeros", 'needs an attention: use "last" or "bridge"')
            rule("self_attention", attends == "decoder", 'needs an attention: use "decoder"')
        else:
            rule_of_attention = partial(check_rule, attention)
            in_model = attention.query_layer is None or attention.query_layer <= layers
            rule_of_attention("query_layer", in_model, f"must be at most num_layers, {layers}")
            at_top = attends in ("none", "encoder") or not self.queries_below_top
            rule_of_attention("query_layer", at_top, 'needs self_attention "none", which is of the top layer')
            at_top = not (self.pre_norm and self.queries_below_top)
            rule_of_attention("query_layer", at_top, "needs pre_norm false: top outputs are normalised")
            rule_of_attention("context_to", layers > 1, "needs more than one layer in num_layers")
            rule_of_attention("input_feeding", self.readout != "none", 'needs a readout: use readout "tanh"')
            rule("feed_summary", False, "needs attention None: a context is fed at every step anyway")
            SCORES[attention.score].check_sizes(self.hidden_size, self.states_size, attention)
        rule("direction", not both_bottom or self.encoder_depth > 1, "needs more than one encoder layer")
        is_one_way = attends == "decoder" or not both_bottom
        rule("self_attention", is_one_way, 'needs direction "both", "forward" or "backward"')
        states = "hidden_size" if self.encoder_size is None else "encoder_size"
        is_shared = self.direction != "both" or self.states_size % 2 == 0
        rule(states, is_shared, 'must be even with direction "both": half for each direction')
        is_halved = self.readout == "maxout" and self.tie == "none"
        rule("hidden_size", not is_halved or self.hidden_size % 2 == 0, 'must be even with readout "maxout"')
        starts_last = self.start == "last"
        wanted = 'must be that of the decoder with decoder_start "last": "bridge" takes any'
        rule("encoder_layers", not starts_last or self.encoder_depth == layers, wanted)
        rule("encoder_size", not starts_last or self.states_size == self.hidden_size, wanted)
        is_min = self.cell in MIN_CELLS
        rule("pre_norm", is_min, 'needs cell "min-gru" or "min-lstm"')
        rule("pre_norm", not both_bottom, 'needs layers of one width, not direction "both-bottom"')
        rule_of_dropout = partial(check_rule, self.regularisation)
        rule_of_dropout("recurrent_dropout", not is_min, f'has no effect with cell "{self.cell}"')
        rule_of_dropout("variational", self.dropout > 0, "has no effect with dropout 0")
        fits = self.readout != "none" or self.embedding_size == self.output_size
        rule("tie", fits, f'with readout "none" needs embedding_size {self.output_size}')

    @property
    def encoder_depth(self) -> int:
        """Number of layers of the encoder."""
        return self.num_layers if self.encoder_layers is None else self.encoder_layers

    @property
    def queries_below_top(self) -> bool:
        """True if a layer below the top one of the decoder attends."""
        layer = None if self.attention is None else self.attention.query_layer
        return layer is not None and layer < self.num_layers

    @property
    def has_cell_state(self) -> bool:
        """True if layers have a cell state c."""
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

        Without a readout it is the size of [s; c] or s; a tied output layer needs the size of an embedding;
        maxout halves the size of the state, as in Bahdanau et al. 2015 (1,000 to 500).
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
class RecurrentLanguageModelConfig(Config):
    """Architecture and sizes of a ``RecurrentLanguageModel``: the options of a decoder without a source."""

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
        if self.tie == "all":
            raise ValueError(
                'tie "all" shares a source embedding, which a language model lacks: use "output"'
            )
        _ = self.decoder  # checks the other options

    @property
    def decoder(self) -> Seq2SeqConfig:
        """Config of the decoder without attention, and so without a source, that the model is."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        return Seq2SeqConfig(attention=None, direction="forward", decoder_start="last", **settings)
