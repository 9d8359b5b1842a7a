"""Encoder and decoder layers: sublayers, each with a residual connection and a norm.

Shapes: B sentences, S source and T target positions, K hypotheses, H heads, D model width.
Masks are bool, True = may be attended.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attend, KeysValues
from .attention_positions import Distances
from .cache import KeyValueCache
from .config import LayerConfig
from .dropout import Dropout
from .multihead import CrossAttention, SelfAttention
from .parts import STANDARD, Parts, build_norm


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2 at each position: Vaswani et al. 2017, equation 2.

    "swiglu" is W2 (swish(W x) * V x), swish(a) = a sigmoid(a): Shazeer 2020, equation 6. The matrix of
    ``widen`` is then W on V, two times ``ffn_size`` wide, and all have biases if the config has them.
    ``activation_dropout`` acts on the input of W2.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.is_gated = config.activation == "swiglu"
        width = 2 * config.ffn_size if self.is_gated else config.ffn_size
        self.widen = nn.Linear(config.d_model, width, bias=config.bias)
        self.narrow = nn.Linear(config.ffn_size, config.d_model, bias=config.bias)
        # ReLU works in place, which saves a copy of the largest tensor of the layer.
        self.activation = _swiglu if self.is_gated else F.relu_ if config.activation == "relu" else F.gelu
        self.dropout = Dropout(config.activation_dropout) if config.activation_dropout else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D)."""
        inner = self.activation(self.widen(x))
        if self.dropout is not None:
            inner = self.dropout(inner)
        output: Tensor = self.narrow(inner)
        return output


def _swiglu(x: Tensor) -> Tensor:
    """Return swish(a) * b for x = [a; b]."""
    gate, linear = x.chunk(2, dim=-1)
    return F.silu(gate) * linear


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
        self.attention = SelfAttention(config, causal=causal, attend=parts.attention_function(config))
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = parts.residual(config), parts.residual(config)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        attend: Attend | None = None,
        distances: Distances | None = None,
        stored: list[KeysValues] | None = None,
    ) -> Tensor:
        """Apply the layer to all positions.

        Args:
            x: (B, S, D).
            mask: bool or a bias, broadcasts to (B, H, S, S); None allows all.
            attend: used in this call instead of ``parts.attend``.
            distances: of the positions, for rotary and relative positions.
            stored: receives the keys and values of self-attention.

        Returns:
            The output, (B, S, D).
        """
        x = self.around_attention(x, lambda h: self.attention(h, mask, attend, distances, stored))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output

    def step(
        self,
        x: Tensor,
        cache: KeyValueCache,
        prefix: KeysValues | None = None,
        prefix_mask: Tensor | None = None,
        mask: Tensor | None = None,
        distances: Distances | None = None,
    ) -> Tensor:
        """Apply the layer to the next token x (B, K, D); returns (B, K, D). See ``SelfAttention.step``."""
        x = self.around_attention(
            x, lambda h: self.attention.step(h, cache, prefix, prefix_mask, mask, distances)
        )
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
        attend = parts.attention_function(config)
        self.attention = SelfAttention(config, causal=True, attend=attend)
        self.cross = CrossAttention(config, memory_size, attend)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_cross = parts.residual(config), parts.residual(config)
        self.around_feed_forward = parts.residual(config)

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        mask: Tensor,
        attend: Attend | None = None,
        own_mask: Tensor | None = None,
        distances: Distances | None = None,
    ) -> Tensor:
        """Apply the layer to all positions.

        Args:
            x: (B, T, D).
            memory: keys and values of the source.
            mask: True where a target position may attend to the source, broadcasting to (B, H, T, S).
            attend: used in this call instead of ``parts.attend``.
            own_mask: bool or a bias of self-attention beside causality, broadcasting to (B, H, T, T).
            distances: of the target positions, for rotary and relative positions.

        Returns:
            The output, (B, T, D).
        """
        x = self.around_attention(x, lambda h: self.attention(h, own_mask, attend, distances))
        return self._after_self_attention(x, memory, mask, attend)

    def step(
        self,
        x: Tensor,
        memory: KeysValues,
        mask: Tensor,
        cache: KeyValueCache,
        own_mask: Tensor | None = None,
        distances: Distances | None = None,
    ) -> Tensor:
        """Apply the layer to the next token of each hypothesis.

        Args:
            x: (B, K, D).
            memory: keys and values of the source.
            mask: True where the target position may attend to the source, broadcasting to (B, H, 1, S).
            cache: keys and values of the earlier tokens; those of x are appended.
            own_mask: bool or a bias of self-attention, broadcasting to (H, 1, keys).
            distances: of the target positions, for rotary and relative positions.

        Returns:
            The output, (B, K, D).
        """
        x = self.around_attention(
            x, lambda h: self.attention.step(h, cache, mask=own_mask, distances=distances)
        )
        return self._after_self_attention(x, memory, mask, None)

    def _after_self_attention(
        self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend | None
    ) -> Tensor:
        x = self.around_cross(x, lambda h: self.cross(h, memory, mask, attend))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


def final_norm(config: LayerConfig) -> nn.Module:
    """Build the norm after the last layer, which only "pre" has: "post" layers end with one of their own."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()
