"""What surrounds attention in a layer and what feeds the first one; a study may put its own in their place.

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

    Normalising before the sublayer leaves a clean path from the last layer to the first, and training needs
    no careful warm-up: Xiong et al. 2020, figure 1.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Run ``sublayer`` on x (B, T, D); returns (B, T, D)."""
        output: Tensor
        if self.pre:
            output = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output


@dataclass(frozen=True, kw_only=True)
class Parts:
    """How a model is put together: what only a study changes is given here, and is no config's key."""

    place: Callable[[LayerConfig], nn.Module] = PositionalEmbedding
    """Makes what joins embedded tokens and their positions, called as ``PositionalEmbedding`` is."""
    attend: Attend = fused_attention
    """Gives the contexts of every attention."""
    residual: Callable[[LayerConfig], nn.Module] = Residual
    """Makes what surrounds a sublayer, called as ``Residual`` is. To leave out every norm, the config's
    ``norm`` must be "post" too: "pre" ends a stack with a norm of its own."""


STANDARD = Parts()
"""The parts of the published model."""
