"""Layers: sublayers, each with a residual connection and a norm.

Shapes: B sentences, S source and T target positions, K hypotheses, H heads, D model width.
Masks are bool, True = may be attended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attend, KeysValues, fused_attention, hard_attention, linear_attention
from .config import LayerConfig
from .fast import Dropout
from .multihead import CrossAttention, SelfAttention

# Replaceable parts of a model: attention function and residual connection.
#
# Shapes: B sentences, T positions, D model width.


RMS_EPSILON = 1e-6
"""Added to the mean square in RMSNorm, as in LLaMA (Touvron et al. 2023, code). Zhang and Sennrich's code has
1e-8; torch's default depends on the dtype."""


def build_norm(config: LayerConfig) -> nn.Module:
    """Build a norm over the last dimension: LayerNorm, RMSNorm, or the identity for ``norm`` "none".

    LayerNorm is (x - mean) / sqrt(variance + 1e-5) * g + b (Ba et al. 2016), RMSNorm x / sqrt(mean(x^2) +
    1e-6) * g (Zhang and Sennrich 2019, equation 4).
    """
    if config.norm == "none":
        return nn.Identity()
    if config.norm_kind == "rms":
        return nn.RMSNorm(config.d_model, eps=RMS_EPSILON)
    return nn.LayerNorm(config.d_model, bias=config.bias)


class Residual(nn.Module):
    """norm(x + dropout(f(x))), Vaswani et al. 2017, section 5.4; or x + dropout(f(norm(x))), "pre".

    In the "pre" order the residual path from last to first layer passes no norm, and training needs no
    careful warm-up: Xiong et al. 2020, figure 1. With ``norm`` "none" it is x + dropout(f(x)).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre = config.norm != "post"
        self.norm = build_norm(config)
        self.dropout: nn.Module = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sublayer with its residual connection.

        Args:
            x: (B, T, D).
            sublayer: f, from (B, T, D) to (B, T, D).

        Returns:
            The output, (B, T, D).
        """
        output: Tensor
        if self.pre:
            output = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Functions and classes that a model is built from; replace one to study its effect.

    Example: ``Transformer(config, 8000, 8000, Parts(attend=my_attention))``.
    """

    attend: Attend = fused_attention
    """Attention function of every attention; the config's ``attention_kind`` must then be "scaled"."""
    residual: Callable[[LayerConfig], nn.Module] = Residual
    """Class of the module around each sublayer; called as ``Residual`` is. To leave out every norm, also set
    the config's ``norm`` to "none" or "post", because "pre" adds a norm after the last layer."""

    def attention_function(self, config: LayerConfig) -> Attend:
        """Return the attention function for ``config.attention_kind``.

        Raises:
            ValueError: both the config and ``attend`` replace the standard one, or relative positions need
                the weights, which a replaced ``attend`` does not return.
        """
        if self.attend is not fused_attention:
            if config.attention_kind != "scaled":
                raise ValueError(
                    f'attention_kind "{config.attention_kind}" has no effect with Parts(attend=...): '
                    "choose one"
                )
            if config.positions == "relative":
                raise ValueError('positions "relative" need the standard attention, not Parts(attend=...)')
        return {"hard": hard_attention, "linear": linear_attention}.get(config.attention_kind, self.attend)


STANDARD = Parts()
"""The parts of the published model."""


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


class Layer(nn.Module):
    """Self-attention, attention to the source in decoder layers, then the feed-forward sublayer.

    h = Residual(SelfAttention)(x), c = Residual(CrossAttention)(h, memory), y = Residual(FeedForward)(c):
    Vaswani et al. 2017, section 3.1. Without attention to the source c = h.
    """

    def __init__(
        self,
        config: LayerConfig,
        parts: Parts = STANDARD,
        *,
        causal: bool = False,
        memory_size: int | None = None,
    ) -> None:
        """Build the sublayers.

        Args:
            config: gives sizes and options.
            parts: attention function and residual connection.
            causal: whether position t attends to positions 0 to t only.
            memory_size: width of the encoder's states; None: the layer does not attend to a source.
        """
        super().__init__()
        attend = parts.attention_function(config)
        self.attention = SelfAttention(config, causal=causal, attend=attend)
        self.cross = None if memory_size is None else CrossAttention(config, memory_size, attend)
        self.feed_forward: nn.Module | None = FeedForward(config)
        self.around_attention = parts.residual(config)
        self.around_cross: Any = None if memory_size is None else parts.residual(config)
        self.around_feed_forward = parts.residual(config)

    def forward(
        self,
        x: Tensor,
        attend_own: Callable[[Tensor], Tensor],
        memory: KeysValues | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer to all positions (B, T, D), or to the next token of each hypothesis (B, K, D).

        Args:
            x: its input.
            attend_own: applies its self-attention, of all positions or of the next one.
            memory: keys and values of the source.
            mask: True where a target position may attend to the source, broadcasting to (B, H, T or 1, S).

        Returns:
            The output, of the shape of x.
        """
        x = self.around_attention(x, attend_own)
        if self.cross is not None:
            x = self.around_cross(x, partial(self.cross, memory=memory, mask=mask))
        if self.feed_forward is not None:
            x = self.around_feed_forward(x, self.feed_forward)
        return x


def final_norm(config: LayerConfig) -> nn.Module:
    """Build the norm after the last layer, which only "pre" has: "post" layers end with one of their own."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()
