"""What a recurrent encoder-decoder is made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from .normalisers import NORMALISERS
from .scopes import SCOPES
from .scores import SCORES

Placement = Literal["before", "after"]
Cell = Literal["lstm", "gru"]
Direction = Literal["both", "forward", "backward"]
Side = Literal["none", "encoder", "decoder", "both"]
Readout = Literal["tanh", "maxout"]
Tie = Literal["none", "output", "all"]


def _check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    if value not in (names := tuple(allowed)):
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")


def _check_size(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """How a recurrent decoder attends: score x scope x normaliser x placement."""

    score: str = "additive"
    """How a decoder state is rated against an encoder state; a name of ``scores.SCORES``."""
    scope: str = "global"
    """Which positions are seen: all, or a window about the own position or about a predicted one."""
    window: int | None = None
    """Half-width D of a local scope's window, in source positions; 10 if left out."""
    normaliser: str = "softmax"
    """Average all positions (softmax), or choose one, trained straight-through or by REINFORCE."""
    placement: Placement = "before"
    """Attend from s(t-1) before the cell (Bahdanau) or from h(t) after it (Luong)."""
    input_feeding: bool = False
    """Join the attentional vector to the next input; for placement "after"."""
    num_heads: int = 1
    """Heads, each with weights of its own; for score "scaled-dot"."""
    attention_size: int | None = None
    """Inner width: hidden layer (additive, concat), keys and values of all heads (scaled-dot), or rank
    (factorised); hidden_size if left out."""
    max_source: int | None = None
    """Source positions that a score by place knows; words after them are ignored; 100 if left out."""
    max_target: int | None = None
    """Target positions that a static score knows; later ones use the last; 100 if left out."""

    def __post_init__(self) -> None:
        """Reject what cannot be built, and what would be accepted but ignored."""
        _check_choice("score", self.score, SCORES)
        _check_choice("scope", self.scope, SCOPES)
        _check_choice("normaliser", self.normaliser, NORMALISERS)
        _check_choice("placement", self.placement, get_args(Placement))
        self._check_sizes()
        if self.input_feeding and self.placement == "before":
            raise ValueError(
                'input_feeding needs placement "after": with "before" the cell reads the context anyway'
            )
        if NORMALISERS[self.normaliser].is_hard and SCOPES[self.scope].scales_weights:
            raise ValueError(
                f'normaliser "{self.normaliser}" cannot choose by scope "{self.scope}", whose weights do not '
                'sum to 1: use "global" or "local-m"'
            )

    def _check_sizes(self) -> None:
        """Reject sizes below 1, and sizes of what this attention does not have."""
        score, scope = SCORES[self.score], SCOPES[self.scope]
        _check_size("num_heads", self.num_heads)
        if self.num_heads > 1 and not score.supports_heads:
            able = " or ".join(f'"{name}"' for name, kind in SCORES.items() if kind.supports_heads)
            raise ValueError(f'num_heads above 1 needs score {able}: "{self.score}" has one head')
        for name, has, why in (
            ("window", scope.has_window, f'scope "{self.scope}": it sees all positions'),
            ("attention_size", score.has_inner_size, f'score "{self.score}": it has no inner width'),
            ("max_source", score.needs_max_source, f'score "{self.score}": it takes sources of any length'),
            ("max_target", score.needs_max_target, f'score "{self.score}": it takes targets of any length'),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not has:
                raise ValueError(f"{name} means nothing with {why}")
            _check_size(name, value)

    def inner_size(self, query_size: int) -> int:
        """Width of a score that has one, when the decoder states are ``query_size`` wide."""
        return query_size if self.attention_size is None else self.attention_size


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """The shape of a ``Seq2Seq``; every combination that is accepted can be built and trained."""

    attention: AttentionConfig | None = AttentionConfig()
    """How the decoder attends; None is the plain encoder-decoder."""
    cell: Cell = "lstm"
    """Recurrent cell of the encoder and the decoder."""
    embedding_size: int = 256
    """Width of the source and of the target embeddings."""
    hidden_size: int = 512
    """Width of a decoder state."""
    encoder_size: int | None = None
    """Width of an encoder state, both directions together; hidden_size if left out."""
    num_layers: int = 1
    """Recurrent layers of the encoder, and as many of the decoder; residual from the third on."""
    direction: Direction = "both"
    """How the source is read; "backward" is source reversal (Sutskever et al. 2014)."""
    dropout: float = 0.2
    """Probability of a zero in the embeddings, between recurrent layers and on the readout."""
    self_attention: Side = "none"
    """Which RNN also attends to its own earlier states (compare Cheng et al. 2016)."""
    feed_summary: bool = False
    """Feed the encoder's summary at every step too (Cho et al. 2014); for attention None."""
    readout: Readout = "tanh"
    """What stands between the state and the output layer (maxout: Bahdanau et al. 2015)."""
    tie: Tie = "none"
    """One matrix for target embedding and output layer ("output"), for the source embedding too ("all")."""

    def __post_init__(self) -> None:
        """Reject what cannot be built, and what would be accepted but ignored."""
        for name, allowed in (
            ("cell", Cell),
            ("direction", Direction),
            ("self_attention", Side),
            ("readout", Readout),
            ("tie", Tie),
        ):
            _check_choice(name, getattr(self, name), get_args(allowed))
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        self._check_sizes()
        if self.attention is None:
            self._check_plain()
        elif self.feed_summary:
            raise ValueError(
                "feed_summary needs attention None: with attention a context is fed at every step anyway"
            )
        else:
            SCORES[self.attention.score].check(self.hidden_size, self.states_size, self.attention)

    def _check_sizes(self) -> None:
        """Reject sizes below 1, and odd ones of what is halved."""
        for name in ("embedding_size", "hidden_size", "num_layers"):
            _check_size(name, getattr(self, name))
        states = "hidden_size" if self.encoder_size is None else "encoder_size"
        _check_size(states, self.states_size)
        if self.direction == "both" and self.states_size % 2:
            raise ValueError(
                f'{states} ({self.states_size}) must be even with direction "both": each has half of it'
            )
        if self.readout == "maxout" and self.tie == "none" and self.hidden_size % 2:
            raise ValueError(
                f'hidden_size ({self.hidden_size}) must be even with readout "maxout": of two units one is '
                "kept"
            )

    def _check_plain(self) -> None:
        """Reject what does not fit together without attention."""
        if self.states_size != self.hidden_size:
            raise ValueError(
                f"encoder_size ({self.encoder_size}) must be hidden_size ({self.hidden_size}) without "
                "attention: the decoder starts from the encoder's last states as they are"
            )
        if self.self_attention in ("encoder", "both"):
            raise ValueError(
                f'self_attention "{self.self_attention}" needs an attention: without one the decoder sees '
                'only the last states of the recurrence; use "decoder" or "none"'
            )

    @property
    def states_size(self) -> int:
        """Width E of an encoder state."""
        return self.hidden_size if self.encoder_size is None else self.encoder_size

    @property
    def output_size(self) -> int:
        """Width D of what the output layer reads: a tied one reads what an embedding is wide.

        A free maxout halves the state, as in the paper (1,000 to 500).
        """
        if self.tie != "none":
            return self.embedding_size
        return self.hidden_size // 2 if self.readout == "maxout" else self.hidden_size
