"""Layers of encoder and decoder: sublayers, each with a residual path and a norm.

Shapes: B sentences, S source and T target positions, K hypotheses, D model width.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attend, CrossAttention, KeysValues, SelfAttention, fused_attention
from .cache import KeyValueCache
from .config import TransformerConfig


class Residual(nn.Module):
    """norm(x + dropout(f(x))), Vaswani et al. 2017, section 5.4; or x + dropout(f(norm(x))), "pre".

    Normalising before the sublayer leaves a clean path from the last layer to the first, and training needs
    no careful warm-up: Xiong et al. 2020, figure 1.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Run ``sublayer`` on x (B, T, D); returns (B, T, D)."""
        output: Tensor
        if self.pre:
            output = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2 at each position: Vaswani et al. 2017, equation 2."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.ffn_size)
        self.narrow = nn.Linear(config.ffn_size, config.d_model)
        self.activation = F.relu if config.activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        output: Tensor = self.narrow(self.activation(self.widen(x)))
        return output


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward sublayer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config, causal=False)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = Residual(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor, attend: Attend = fused_attention) -> Tensor:
        """Read x (B, S, D) under mask (B, 1, 1, S); returns (B, S, D)."""
        x = self.around_attention(x, lambda h: self.attention(h, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then the feed-forward sublayer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config, causal=True)
        self.cross = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_cross = Residual(config), Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(
        self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend = fused_attention
    ) -> Tensor:
        """Read all of x (B, T, D), the memory under mask (B, 1, 1, S); returns (B, T, D)."""
        x = self.around_attention(x, lambda h: self.attention(h, None, attend))
        return self._read(x, memory, mask, attend)

    def step(self, x: Tensor, memory: KeysValues, mask: Tensor, cache: KeyValueCache) -> Tensor:
        """Read one more token x (B, K, D) of each hypothesis; returns (B, K, D)."""
        x = self.around_attention(x, lambda h: self.attention.step(h, cache))
        return self._read(x, memory, mask, fused_attention)

    def _read(self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend) -> Tensor:
        x = self.around_cross(x, lambda h: self.cross(h, memory, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output
