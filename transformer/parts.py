"""Replaceable parts of a model: position encoding, attention function and residual connection.

Shapes: B sentences, T positions, D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from .attention import Attend, fused_attention
from .config import LayerConfig
from .dropout import Dropout
from .positions import PositionalEmbedding


class Residual(nn.Module):
    """norm(x + dropout(f(x))), Vaswani et al. 2017, section 5.4; or x + dropout(f(norm(x))), "pre".

    In the "pre" order the residual path from last to first layer passes no norm, and training needs no
    careful warm-up: Xiong et al. 2020, figure 1.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model)
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
    """Attention function of every attention."""
    residual: Callable[[LayerConfig], nn.Module] = Residual
    """Class of the module around each sublayer; called as ``Residual`` is. To leave out every norm, also set
    the config's ``norm`` to "post", because "pre" adds a norm after the last layer."""


STANDARD = Parts()
"""The parts of the published model."""
