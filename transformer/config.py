"""The size and the shape of a Transformer; every value is checked before a weight is made."""

from dataclasses import dataclass
from typing import Literal, get_args

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]
Tie = Literal["none", "output", "all"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """An encoder-decoder of Vaswani et al. 2017, table 3; the defaults are a small one."""

    d_model: int = 256
    """Width of embeddings, states and sublayer outputs; even, and a multiple of ``num_heads``."""
    num_heads: int = 4
    """Heads of every attention, each ``d_model / num_heads`` wide."""
    encoder_layers: int = 3
    """Layers that read the source."""
    decoder_layers: int = 3
    """Layers that write the target."""
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
    tie: Tie = "output"
    """Share one matrix between: nothing, target embedding and output, or those and the source embedding."""

    def __post_init__(self) -> None:
        """Reject sizes that cannot be built and names that mean nothing."""
        for name in ("d_model", "num_heads", "encoder_layers", "decoder_layers", "ffn_size"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model ({self.d_model}) must be a multiple of num_heads ({self.num_heads})")
        if self.d_model % 2:
            raise ValueError(
                f"d_model must be even, a sine and a cosine for each frequency, got {self.d_model}"
            )
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
        for name, kind in (("norm", Norm), ("activation", Activation), ("tie", Tie)):
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
