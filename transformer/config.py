"""The size and the shape of a Transformer; every value is checked before a weight is made."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]
Positions = Literal["sinusoidal", "learned", "none"]
Tie = Literal["none", "output", "all"]


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """What the layers of every model here are made of, however many it has; the defaults are small ones."""

    d_model: int = 256
    """Width of embeddings, states and sublayer outputs; even where the positions are sinusoidal."""
    num_heads: int = 4
    """Heads of every attention."""
    head_size: int | None = None
    """Width of a head; ``d_model / num_heads`` if left out."""
    ffn_size: int = 1024
    """Width inside the feed-forward sublayer."""
    dropout: float = 0.1
    """Share dropped of embeddings and of sublayer outputs (section 5.4 of the paper)."""
    attention_dropout: float = 0.0
    """Share dropped of attention weights; not in the paper, and dear on a CPU."""
    norm: Norm = "pre"
    """Normalise a sublayer's input ("pre", and once at the end) or the sum after it ("post")."""
    activation: Activation = "relu"
    """Between the two matrices of the feed-forward sublayer."""
    positions: Positions = "sinusoidal"
    """What tells a token's place: waves, a learned vector for each place, or nothing."""
    tie: Tie = "output"
    """Share one matrix between: nothing, target embedding and output, or those and the source embedding."""

    def __post_init__(self) -> None:
        """Reject sizes that cannot be built and names that mean nothing."""
        self._check_sizes()
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
        kinds = {"norm": Norm, "activation": Activation, "positions": Positions, "tie": Tie}
        for name, kind in kinds.items():
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")

    def _check_sizes(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type in (int, int | None) and value is not None and value < 1:
                raise ValueError(f"{item.name} must be at least 1, got {value}")
        if self.head_size is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model ({self.d_model}) must be a multiple of num_heads ({self.num_heads}), unless "
                "head_size says how wide a head is"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model must be even, a sine and a cosine for each frequency, got {self.d_model}"
            )

    @property
    def attention_size(self) -> int:
        """Width of all heads together: that of queries, of keys and of values."""
        return self.num_heads * (self.head_size or self.d_model // self.num_heads)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """An encoder-decoder of Vaswani et al. 2017, table 3."""

    encoder_layers: int = 3
    """Layers that read the source."""
    decoder_layers: int = 3
    """Layers that write the target."""


@dataclass(frozen=True, kw_only=True)
class DecoderOnlyConfig(LayerConfig):
    """One stack for all that is read and written: decoder-only translation, or a language model."""

    num_layers: int = 6
    """Layers of the stack."""
