"""An attention score by the angle between decoder and encoder state.

Shapes: B sentences, Q queries, S source positions, H and E sizes of decoder and encoder states.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from seq2seq.scores import AttentionSizes, ProductScore


class CosineScore(ProductScore):
    """e = b cos(s, W h), b being one trained strength (Graves et al. 2014, equations 5 and 6)."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.key = nn.Linear(value_size, query_size, bias=False)
        self.strength = nn.Parameter(torch.tensor(5.0))

    def project_keys(self, states: Tensor) -> Tensor:
        """Return W h / |W h| of states h (B, S, E), once per sentence, (B, S, H)."""
        return normalize(super().project_keys(states), dim=-1)

    def map_query(self, state: Tensor) -> Tensor:
        """Return b s / |s| of states s (B, Q, H), whose products with the keys are the scores."""
        return self.strength * normalize(state, dim=-1)
