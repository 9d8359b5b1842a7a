"""Sizes and options of the Transformer, checked when a config is made."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]
Positions = Literal["sinusoidal", "learned", "none"]
Tie = Literal["none", "output", "all"]
MAX_LAYERS = 1_000
"""The deepest stack that the literature trains (Wang et al. 2022, DeepNet)."""


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Options that all models of this package share; the defaults make a small model.

    Raises:
        ValueError: a size or name is invalid; the message names the field and its value.
    """

    d_model: int = 256
    """Width of embeddings, states and sublayer outputs; must be even for sinusoidal positions."""
    num_heads: int = 4
    """Heads of every attention."""
    head_size: int | None = None
    """Width of a head; None means ``d_model / num_heads``."""
    ffn_size: int = 1024
    """Width inside the feed-forward sublayer."""
    dropout: float = 0.1
    """Dropout probability of embeddings and sublayer outputs (Vaswani et al. 2017, section 5.4)."""
    attention_dropout: float = 0.0
    """Dropout probability of attention weights; not in the paper, and slow on a CPU."""
    norm: Norm = "pre"
    """Normalise each sublayer's input, and the last output ("pre"), or each residual sum ("post")."""
    activation: Activation = "relu"
    """Activation between the two matrices of the feed-forward sublayer."""
    positions: Positions = "sinusoidal"
    """Position encoding: sinusoids, one learned vector per position, or none."""
    tie: Tie = "output"
    """Matrices shared: none, target embedding and output layer, or both of these and the source embedding."""

    def __post_init__(self) -> None:
        """Reject invalid sizes, probabilities and names."""
        self._check_sizes()
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
        choices = {"norm": Norm, "activation": Activation, "positions": Positions, "tie": Tie}
        for name, choice in choices.items():
            value, allowed = getattr(self, name), get_args(choice)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")

    def _check_sizes(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in (int, int | None) and value is not None and value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
            if field.name.endswith("layers") and value > MAX_LAYERS:
                raise ValueError(f"{field.name} must be at most {MAX_LAYERS:,}, got {value:,}")
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
        """Width of all heads together, which is the width of queries, keys and values."""
        return self.num_heads * (self.head_size or self.d_model // self.num_heads)


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
