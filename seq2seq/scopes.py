"""The scopes: which source positions a query sees, and how much each of them counts.

Shapes: B sentences, Q queries each, S source positions i, H decoder state s. Positions count from 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .score import AttentionSizes, MultiplyAdds, Queries

DEFAULT_WINDOW = 10
"""D of a window whose config does not say, as in Luong et al. 2015, section 3.2."""


class ScopeOutput(NamedTuple):
    """What the queries see of the source."""

    visible: Tensor
    """True where a weight may be above 0, at least once a row; it broadcasts to (B, heads, Q, S)."""
    factor: Tensor | None = None
    """What the weights are multiplied by in the end, (B, 1, Q, S); None for 1."""


class GlobalScope(nn.Module):
    """All i: Bahdanau et al. 2015, and Luong et al. 2015, section 3.1."""

    has_window = False
    """Has a window of half-width D, ``AttentionConfig.window``."""
    scales_weights = False
    """Scales the weights, which then need not sum to 1."""

    def __init__(self, query_size: int, config: AttentionSizes) -> None:
        super().__init__()

    @classmethod
    def work(cls, query_size: int) -> MultiplyAdds:
        """Count what is learned here: nothing."""
        return MultiplyAdds()

    def forward(self, queries: Queries, mask: Tensor) -> ScopeOutput:
        """Show every position that ``mask`` (B, S) shows, which is at least one a sentence."""
        return ScopeOutput(mask[:, None, None])


class MonotonicScope(GlobalScope):
    """|i - p| <= D, p = min(t, S - 1): local-m of Luong et al. 2015, section 3.2.

    t is the query's position and S the sentence's own length. A target that is longer than its source stays
    at the last word, so p is a position that may be seen and no row is ever empty.
    """

    has_window = True

    def __init__(self, query_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, config)
        self.half_width = config.window or DEFAULT_WINDOW

    def forward(self, queries: Queries, mask: Tensor) -> ScopeOutput:
        """Show the window about the query's own position in a source with ``mask`` (B, S)."""
        centre = queries.position.minimum(mask.sum(1, keepdim=True) - 1)
        visible = mask.unsqueeze(1) & (_offsets(centre, mask).abs() <= self.half_width)
        return ScopeOutput(visible.unsqueeze(1))


class PredictiveScope(MonotonicScope):
    """|i - p| <= D, p = S sigmoid(v . tanh(W s)): local-p of Luong et al. 2015, section 3.2, eq. 9 and 10.

    The weights are those of the softmax in the window times exp(-(i - p)^2 / (2 sigma^2)), sigma = D / 2, as
    published: they sum to at most 1. p lies in [0, S] and D is at least 1, so a window reaches the first or
    the last word and no row is ever empty.
    """

    scales_weights = True

    def __init__(self, query_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, config)
        self.hidden = nn.Linear(query_size, query_size, bias=False)
        self.energy = nn.Linear(query_size, 1, bias=False)

    @classmethod
    def work(cls, query_size: int) -> MultiplyAdds:
        """Count W s and v . tanh(W s)."""
        return MultiplyAdds(target=(query_size + 1) * query_size)

    def forward(self, queries: Queries, mask: Tensor) -> ScopeOutput:
        """Show the window about a learned position in a source with ``mask`` (B, S)."""
        energy = self.energy(self.hidden(queries.state).tanh()).squeeze(-1)  # (B, Q)
        # Under autocast it is bfloat16, which has no fractions of a position beyond 128.
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        offsets = _offsets(mask.sum(1, keepdim=True) * energy.sigmoid(), mask)
        visible = mask.unsqueeze(1) & (offsets.abs() <= self.half_width)
        factor = (-2 * (offsets / self.half_width) ** 2).exp()
        return ScopeOutput(visible.unsqueeze(1), factor.unsqueeze(1))


def _offsets(centre: Tensor, mask: Tensor) -> Tensor:
    """Distance i - p of every position i of ``mask`` (B, S) from centre p (B, Q); (B, Q, S)."""
    return torch.arange(mask.size(1), device=mask.device) - centre.unsqueeze(-1)


SCOPES: dict[str, type[GlobalScope]] = {
    "global": GlobalScope,
    "local-m": MonotonicScope,
    "local-p": PredictiveScope,
}
"""From ``AttentionConfig.scope`` to a scope."""
