"""Replaceable parts of a model: position encoding, attention function, masks and residual connection.

Shapes: B sentences, T positions, D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from .attention import Attend, fused_attention, hard_attention
from .config import LayerConfig
from .dropout import Dropout
from .linear_attention import linear_attention
from .mask_patterns import MaskPattern, WindowPattern, build_pattern, checked_mask
from .positions import PositionalEmbedding

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
        self.dropout = Dropout(config.dropout)

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

    positional_embedding: Callable[[LayerConfig], nn.Module] = PositionalEmbedding
    """Class of the module that adds positions to embedded tokens; called as ``PositionalEmbedding`` is."""
    attend: Attend = fused_attention
    """Attention function of every attention; the config's ``attention_kind`` must then be "scaled"."""
    residual: Callable[[LayerConfig], nn.Module] = Residual
    """Class of the module around each sublayer; called as ``Residual`` is. To leave out every norm, also set
    the config's ``norm`` to "none" or "post", because "pre" adds a norm after the last layer."""
    encoder_mask: MaskPattern | None = None
    """Function of positions used in place of the config's ``encoder_mask``."""
    decoder_mask: MaskPattern | None = None
    """Function of positions used in place of the config's ``decoder_mask``."""
    cross_mask: MaskPattern | None = None
    """Function of positions used in place of the config's ``cross_mask``."""

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

    def mask_pattern(self, name: str, config: LayerConfig) -> MaskPattern | None:
        """Return the function of a mask; None if all is allowed.

        Args:
            name: "encoder_mask", "decoder_mask" or "cross_mask".
            config: says which mask, unless one was given as a function.

        Raises:
            ValueError: the config names a file that is no mask.
            OSError: the file cannot be read.
        """
        given: MaskPattern | None = getattr(self, name)
        if given is None:
            return build_pattern(name, getattr(config, name), config.num_heads)
        return given if isinstance(given, WindowPattern) else partial(checked_mask, name, given)


STANDARD = Parts()
"""The parts of the published model."""
