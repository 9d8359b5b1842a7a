"""The scores that know a source position by its number alone.

Shapes: B sentences, Q queries each, S source positions i, M = max_source of them known, N = max_target target
positions t known, H decoder state s, A rank.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .score import AttentionSizes, MultiplyAdds, Queries, Score

DEFAULT_POSITIONS = 100
"""M and N where the config does not say."""


class LocationBasedScore(Score):
    """One weight for each of M source positions, whatever stands there.

    A shorter source uses the first of them; of a longer one the words past the last are ignored (Luong et al.
    2015, footnote 6). The softmax runs over what is left, so the weights are renormalised for every length: a
    short source's sum to 1 too, which the paper leaves open.
    """

    needs_max_source = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.max_source = config.max_source or DEFAULT_POSITIONS

    def project(self, states: Tensor) -> Tensor:
        """Make keys without content, (B, S, 0): only their number counts."""
        return states[..., :0]

    def reach(self, mask: Tensor) -> Tensor:
        """Cut off what is past M; M is at least 1, so the first word of every source (B, S) is left."""
        return mask & (torch.arange(mask.size(1), device=mask.device) < self.max_source)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Rate as many positions as there are keys, (B, 1, Q, S): -inf past M."""
        rows = self.rows(queries)[..., : keys.size(1)]
        return pad(rows, (0, keys.size(1) - rows.size(-1)), value=float("-inf")).unsqueeze(1)

    def rows(self, queries: Queries) -> Tensor:
        """Rate all positions that are known, (B, Q, M)."""
        raise NotImplementedError


class LocationScore(LocationBasedScore):
    """(W s)[i] of source position i: Luong et al. 2015, eq. 8."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.query = nn.Linear(query_size, self.max_source, bias=False)

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W s and the sum."""
        return MultiplyAdds(target=query_size * (config.max_source or DEFAULT_POSITIONS), pair=value_size)

    def rows(self, queries: Queries) -> Tensor:
        """Compute W s, (B, Q, M)."""
        rows: Tensor = self.query(queries.state)
        return rows


class StaticScore(LocationBasedScore):
    """W[t, i] of target position t and source position i, parameters: lecture notes' softmax(W) X.

    Target positions past N use the last row. Compare the random Synthesizer of Tay et al. 2021.
    """

    needs_max_target = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        shape = (config.max_target or DEFAULT_POSITIONS, self.row_size(query_size, config))
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))

    @staticmethod
    def row_size(query_size: int, config: AttentionSizes) -> int:
        """Width of what is looked up: M."""
        return config.max_source or DEFAULT_POSITIONS

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count the sum alone: a row is looked up."""
        return MultiplyAdds(pair=value_size)

    def rows(self, queries: Queries) -> Tensor:
        """Look up W[t], (B, Q, M)."""
        return self.table[queries.position.clamp(max=self.table.size(0) - 1)]


class StaticFactorisedScore(StaticScore):
    """(W_1 W_2)[t, i], W_1 N by A, W_2 A by M: a static score of rank A; lecture notes' softmax(W_1 W_2) X.

    Compare the factorised random Synthesizer of Tay et al. 2021.
    """

    has_inner_size = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.expand = nn.Linear(config.inner_size(query_size), self.max_source, bias=False)

    @staticmethod
    def row_size(query_size: int, config: AttentionSizes) -> int:
        """Width of what is looked up: the rank A."""
        return config.inner_size(query_size)

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W_1[t] W_2 and the sum."""
        return MultiplyAdds(
            target=config.inner_size(query_size) * (config.max_source or DEFAULT_POSITIONS), pair=value_size
        )

    def rows(self, queries: Queries) -> Tensor:
        """Compute W_1[t] W_2, (B, Q, M)."""
        rows: Tensor = self.expand(super().rows(queries))
        return rows
