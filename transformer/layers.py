"""Layers of encoder and decoder: sublayers, each with a residual path and a norm.

Shapes: B sentences, S source and T target positions, K hypotheses, D model width.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attend, KeysValues
from .cache import KeyValueCache
from .config import LayerConfig
from .multihead import CrossAttention, SelfAttention
from .parts import STANDARD, Parts


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2 at each position: Vaswani et al. 2017, equation 2."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.ffn_size)
        self.narrow = nn.Linear(config.ffn_size, config.d_model)
        # In place: no second copy of what is widest.
        self.activation = F.relu_ if config.activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        output: Tensor = self.narrow(self.activation(self.widen(x)))
        return output


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward sublayer; ``causal`` ones make a language model."""

    def __init__(self, config: LayerConfig, parts: Parts = STANDARD, *, causal: bool = False) -> None:
        super().__init__()
        self.attention = SelfAttention(config, causal=causal, attend=parts.attend)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = parts.residual(config), parts.residual(config)

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend | None = None) -> Tensor:
        """Read x (B, S, D) under a mask that broadcasts to (B, H, S, S); returns (B, S, D)."""
        x = self.around_attention(x, lambda h: self.attention(h, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output

    def step(
        self, x: Tensor, cache: KeyValueCache, prefix: KeysValues | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Read one more token x (B, K, D) of each hypothesis, after a prefix if given; returns (B, K, D)."""
        x = self.around_attention(x, lambda h: self.attention.step(h, cache, prefix, mask))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then the feed-forward sublayer."""

    def __init__(self, config: LayerConfig, memory_size: int | None = None, parts: Parts = STANDARD) -> None:
        super().__init__()
        self.attention = SelfAttention(config, causal=True, attend=parts.attend)
        self.cross = CrossAttention(config, memory_size, parts.attend)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_cross = parts.residual(config), parts.residual(config)
        self.around_feed_forward = parts.residual(config)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend | None = None) -> Tensor:
        """Read all of x (B, T, D), the memory under mask (B, 1, 1, S); returns (B, T, D)."""
        x = self.around_attention(x, lambda h: self.attention(h, None, attend))
        return self._read(x, memory, mask, attend)

    def step(self, x: Tensor, memory: KeysValues, mask: Tensor, cache: KeyValueCache) -> Tensor:
        """Read one more token x (B, K, D) of each hypothesis; returns (B, K, D)."""
        x = self.around_attention(x, lambda h: self.attention.step(h, cache))
        return self._read(x, memory, mask, None)

    def _read(self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend | None) -> Tensor:
        x = self.around_cross(x, lambda h: self.cross(h, memory, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


def final_norm(config: LayerConfig) -> nn.Module:
    """Normalise the sum that pre-norm layers leave as it is; post-norm layers have done so."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
