"""Scopes, which decide which source positions a query can attend to.

Shapes: B sentences, Q queries per sentence, S source positions i, H size of a decoder state s. Positions are
counted from 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .scores import AttentionSizes, MultiplyAdds, Queries

DEFAULT_WINDOW = 10
"""Half-width D of a window if the config leaves it out, as in Luong et al. 2015, section 3.2."""


class ScopeOutput(NamedTuple):
    """Positions that the queries can attend to, and a factor for their weights."""

    visible: Tensor
    """True where a query may attend, at least once per query; broadcasts to (B, heads, Q, S)."""
    factor: Tensor | None = None
    """Multiplied with the normalised weights, (B, 1, Q, S); None stands for 1."""


class GlobalScope(nn.Module):
    """All source positions: Bahdanau et al. 2015, and Luong et al. 2015, section 3.1."""

    has_window = False
    """Whether it has a window, whose half-width is ``AttentionConfig.window``."""
    scales_weights = False
    """Whether it multiplies the weights by a factor, so that they need not sum to 1."""

    def __init__(self, query_size: int, config: AttentionSizes) -> None:
        """Create a scope.

        Args:
            query_size: H, the size of a decoder state.
            config: the half-width of the window.
        """
        super().__init__()

    @classmethod
    def multiply_adds(cls, query_size: int) -> MultiplyAdds:
        """Count the multiply-adds with parameters of the scope."""
        return MultiplyAdds()

    def forward(self, queries: Queries, mask: Tensor) -> ScopeOutput:
        """Select the source positions that each query can attend to.

        Args:
            queries: Q queries per sentence.
            mask: True for real tokens, which come first, at least one per sentence, (B, S).
        """
        return ScopeOutput(mask[:, None, None])


class MonotonicScope(GlobalScope):
    """Positions |i - p| <= D, p = min(t, S - 1): local-m of Luong et al. 2015, section 3.2.

    t is the target position of the query and S the length of its source sentence. The paper sets p = t. The
    minimum keeps the window at the last word if the target is longer than the source, so that no window is
    empty.
    """

    has_window = True

    def __init__(self, query_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, config)
        self.half_width = config.window or DEFAULT_WINDOW

    def forward(self, queries: Queries, mask: Tensor) -> ScopeOutput:
        """Select the window around the query's own target position; arguments as for ``GlobalScope``."""
        centre = queries.position.minimum(mask.sum(1, keepdim=True) - 1)
        visible = mask.unsqueeze(1) & (_offsets(centre, mask).abs() <= self.half_width)
        return ScopeOutput(visible.unsqueeze(1))


class PredictiveScope(MonotonicScope):
    """Positions |i - p| <= D, p = S sigmoid(v . tanh(W s)): local-p of Luong et al. 2015, eq. 9 and 10.

    S is the length of the source sentence. After the softmax over the window, the weights are multiplied by
    exp(-(i - p)^2 / (2 sigma^2)) with sigma = D / 2, as in the paper, so that they sum to at most 1. Since
    p is in [0, S] and D is at least 1, no window is empty.
    """

    scales_weights = True

    def __init__(self, query_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, config)
        self.hidden = nn.Linear(query_size, query_size, bias=False)
        self.energy = nn.Linear(query_size, 1, bias=False)

    @classmethod
    def multiply_adds(cls, query_size: int) -> MultiplyAdds:
        """Count W s and v . tanh(W s)."""
        return MultiplyAdds(target=(query_size + 1) * query_size)

    def forward(self, queries: Queries, mask: Tensor) -> ScopeOutput:
        """Select the window around the predicted position p; arguments as for ``GlobalScope``."""
        energy = self.energy(self.hidden(queries.state).tanh()).squeeze(-1)  # (B, Q)
        # Under autocast it is bfloat16, which cannot represent fractions of a position above 128.
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        offsets = _offsets(mask.sum(1, keepdim=True) * energy.sigmoid(), mask)
        visible = mask.unsqueeze(1) & (offsets.abs() <= self.half_width)
        factor = (-2 * (offsets / self.half_width) ** 2).exp()  # sigma = half_width / 2
        return ScopeOutput(visible.unsqueeze(1), factor.unsqueeze(1))


def _offsets(centre: Tensor, mask: Tensor) -> Tensor:
    """Return i - p for every position i of ``mask`` (B, S) and centre p (B, Q), (B, Q, S)."""
    return torch.arange(mask.size(1), device=mask.device) - centre.unsqueeze(-1)


SCOPES: dict[str, type[GlobalScope]] = {
    "global": GlobalScope,
    "local-m": MonotonicScope,
    "local-p": PredictiveScope,
}
"""Scope classes by ``AttentionConfig.scope``."""
