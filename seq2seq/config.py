"""What a recurrent encoder-decoder is made of."""

from dataclasses import dataclass
from typing import Literal, get_args

Attention = Literal["none", "additive", "dot", "general", "concat"]
Placement = Literal["before", "after"]
Cell = Literal["lstm", "gru"]
Tie = Literal["none", "output", "all"]


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """The shape of a ``Seq2Seq``; every combination that is accepted can be built and trained."""

    attention: Attention = "additive"
    """How a decoder state is scored against an encoder state; "none" is the plain encoder-decoder."""
    placement: Placement = "before"
    """Attend from s(t-1) before the cell (Bahdanau) or from h(t) after it (Luong)."""
    cell: Cell = "lstm"
    """Recurrent cell of the encoder and the decoder."""
    embedding_size: int = 256
    """Width of the source and of the target embeddings."""
    hidden_size: int = 512
    """Width of a decoder state and of an encoder state (both directions of an encoder together)."""
    num_layers: int = 1
    """Recurrent layers of the encoder, and as many of the decoder."""
    bidirectional: bool = True
    """Read the source in both directions, hidden_size / 2 each."""
    dropout: float = 0.2
    """Probability of a zero in the embeddings, between recurrent layers and on the readout."""
    input_feeding: bool = False
    """Join the attentional vector to the next input; for placement "after"."""
    reverse_source: bool = False
    """Read the source from its last word to its first (Sutskever et al. 2014)."""
    tie: Tie = "none"
    """One matrix for target embedding and output layer ("output"), for the source embedding too ("all")."""
    attention_size: int | None = None
    """Width of the hidden layer of "additive" and "concat"; hidden_size if left out."""

    def __post_init__(self) -> None:
        """Reject what cannot be built, and what would be accepted but ignored."""
        for name, allowed in (
            ("attention", Attention),
            ("placement", Placement),
            ("cell", Cell),
            ("tie", Tie),
        ):
            _check_choice(name, getattr(self, name), get_args(allowed))
        for name in ("embedding_size", "hidden_size", "num_layers"):
            _check_size(name, getattr(self, name))
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be even with bidirectional = true: "
                "each direction has half of it"
            )
        self._check_attention()

    def _check_attention(self) -> None:
        """Reject settings that mean nothing with this kind of attention."""
        if self.attention == "none" and self.placement == "after":
            raise ValueError('placement "after" means nothing with attention "none": use "before"')
        if self.input_feeding and self.attention == "none":
            raise ValueError('input_feeding means nothing with attention "none": no vector to feed')
        if self.input_feeding and self.placement == "before":
            raise ValueError(
                'input_feeding needs placement "after": with "before" the cell reads the context anyway'
            )
        if self.attention_size is None:
            return
        _check_size("attention_size", self.attention_size)
        if self.attention not in ("additive", "concat"):
            raise ValueError(
                f'attention_size means nothing with attention "{self.attention}": '
                'only "additive" and "concat" have a hidden layer'
            )

    @property
    def output_size(self) -> int:
        """Width D of what the output layer reads: a tied one reads what an embedding is wide."""
        return self.hidden_size if self.tie == "none" else self.embedding_size


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _check_size(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
