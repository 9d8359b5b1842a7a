"""Where a token stands: joined to its embedding. Shapes: B, T tokens, D model width."""

import math

import torch
from torch import Tensor, nn

from .config import LayerConfig
from .dropout import Dropout

BASE = 10000.0
"""The longest wave is 2 pi times this many positions (Vaswani et al. 2017, section 3.5)."""

LEARNED = 512
"""Positions that have a learned vector; those after them share the last one."""


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Encode ``positions``, of any shape, as (*shape, size), in float64.

    PE(p, 2i) = sin(p / BASE^(2i / size)) and PE(p, 2i + 1) = cos(p / BASE^(2i / size)): Vaswani et al. 2017,
    section 3.5. Computed anew at each call: exact at any position, and there is no longest sentence.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size
    angles = positions.double().unsqueeze(-1) * torch.exp(-math.log(BASE) * exponents)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class PositionalEmbedding(nn.Module):
    """dropout(sqrt(D) E[token] + PE(position)): Vaswani et al. 2017, sections 3.4, 3.5 and 5.4.

    E starts as normal noise of deviation D^-0.5: scaled up it is of the size of the sinusoids, and as a tied
    output matrix it gives logits of deviation 1 from normalised states. Learned positions (Gehring et al.
    2017, section 3.1) start and are scaled as E is.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.sinusoidal = config.positions == "sinusoidal"
        self.places = nn.Embedding(LEARNED, config.d_model) if config.positions == "learned" else None
        self.dropout = Dropout(config.dropout)

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        """Place embedded tokens (B, T, D) at ``positions``, counted from 0, (T,), (B, T) or (B, 1)."""
        x = embedded * self.scale
        if self.sinusoidal:
            x = x + sinusoids(positions, x.size(-1)).to(x.dtype)
        elif self.places is not None:
            x = x + self.places(positions.clamp(max=LEARNED - 1)) * self.scale
        placed: Tensor = self.dropout(x)
        return placed
