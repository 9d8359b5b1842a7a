"""Where a token stands: sinusoids added to its embedding. Shapes: B, T tokens, D model width."""

import math

import torch
from torch import Tensor, nn

BASE = 10000.0
"""The longest wave is 2 pi times this many positions (Vaswani et al. 2017, section 3.5)."""


def sinusoids(length: int, size: int, *, start: int = 0, like: Tensor) -> Tensor:
    """Encode positions start, ..., start + length - 1 as (length, size), of type and device of ``like``.

    PE(p, 2i) = sin(p / BASE^(2i / size)) and PE(p, 2i + 1) = cos(p / BASE^(2i / size)), the paper's section
    3.5. Computed anew in float64 at each call: exact at any position, and there is no longest sentence.
    """
    positions = torch.arange(start, start + length, dtype=torch.float64, device=like.device)
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=like.device) / size
    angles = positions.unsqueeze(1) * torch.exp(-math.log(BASE) * exponents)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(like.dtype)


class PositionedEmbedding(nn.Module):
    """dropout(sqrt(D) E[token] + PE(position)): Vaswani et al. 2017, sections 3.4, 3.5 and 5.4.

    E starts as normal noise of deviation D^-0.5: scaled up it is of the size of the sinusoids, and as a tied
    output matrix it gives logits of deviation 1 from normalised states.
    """

    def __init__(self, table: nn.Embedding, dropout: float) -> None:
        super().__init__()
        self.table = table
        self.scale = math.sqrt(table.embedding_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, positions: int, start: int = 0) -> Tensor:
        """Embed tokens (B, T), giving (B, T, D); ``positions`` is T, or 1 where all stand at ``start``."""
        embedded: Tensor = self.table(tokens) * self.scale
        where = sinusoids(positions, embedded.size(-1), start=start, like=embedded)
        summed: Tensor = self.dropout(embedded + where)
        return summed
