"""Encoder and decoder layers: sublayers, each with a residual connection and a norm.

Shapes: B sentences, S source and T target positions, K hypotheses, H heads, D model width.
Masks are bool, True = may be attended.
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
        # ReLU works in place, which saves a copy of the largest tensor of the layer.
        self.activation = F.relu_ if config.activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D)."""
        output: Tensor = self.narrow(self.activation(self.widen(x)))
        return output


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward sublayer; ``causal`` ones make a language model.

    h = Residual(SelfAttention)(x), y = Residual(FeedForward)(h): Vaswani et al. 2017, section 3.1, encoder.
    """

    def __init__(self, config: LayerConfig, parts: Parts = STANDARD, *, causal: bool = False) -> None:
        """Build the sublayers.

        Args:
            config: gives sizes and options.
            parts: attention function and residual connection.
            causal: whether position t attends to positions 0 to t only.
        """
        super().__init__()
        self.attention = SelfAttention(config, causal=causal, attend=parts.attend)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = parts.residual(config), parts.residual(config)

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend | None = None) -> Tensor:
        """Apply the layer to all positions.

        Args:
            x: (B, S, D).
            mask: broadcasts to (B, H, S, S); None allows all.
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The output, (B, S, D).
        """
        x = self.around_attention(x, lambda h: self.attention(h, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output

    def step(
        self, x: Tensor, cache: KeyValueCache, prefix: KeysValues | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Apply the layer to the next token x (B, K, D); returns (B, K, D). See ``SelfAttention.step``."""
        x = self.around_attention(x, lambda h: self.attention.step(h, cache, prefix, mask))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then the feed-forward sublayer.

    h = Residual(SelfAttention)(x), c = Residual(CrossAttention)(h, memory), y = Residual(FeedForward)(c):
    Vaswani et al. 2017, section 3.1, decoder.
    """

    def __init__(self, config: LayerConfig, memory_size: int | None = None, parts: Parts = STANDARD) -> None:
        """Build the sublayers.

        Args:
            config: gives sizes and options.
            memory_size: width of the encoder's states; None means ``d_model``.
            parts: attention function and residual connection.
        """
        super().__init__()
        self.attention = SelfAttention(config, causal=True, attend=parts.attend)
        self.cross = CrossAttention(config, memory_size, parts.attend)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_cross = parts.residual(config), parts.residual(config)
        self.around_feed_forward = parts.residual(config)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend | None = None) -> Tensor:
        """Apply the layer to all positions.

        Args:
            x: (B, T, D).
            memory: keys and values of the source.
            mask: True at real source tokens, (B, 1, 1, S).
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The output, (B, T, D).
        """
        x = self.around_attention(x, lambda h: self.attention(h, None, attend))
        return self._after_self_attention(x, memory, mask, attend)

    def step(self, x: Tensor, memory: KeysValues, mask: Tensor, cache: KeyValueCache) -> Tensor:
        """Apply the layer to the next token of each hypothesis.

        Args:
            x: (B, K, D).
            memory: keys and values of the source.
            mask: True at real source tokens, (B, 1, 1, S).
            cache: keys and values of the earlier tokens; those of x are appended.

        Returns:
            The output, (B, K, D).
        """
        x = self.around_attention(x, lambda h: self.attention.step(h, cache))
        return self._after_self_attention(x, memory, mask, None)

    def _after_self_attention(
        self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend | None
    ) -> Tensor:
        x = self.around_cross(x, lambda h: self.cross(h, memory, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


def final_norm(config: LayerConfig) -> nn.Module:
    """Build the norm after the last layer: identity for "post", whose layers end with a norm of their own."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
