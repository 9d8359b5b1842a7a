"""Scores that depend on source positions alone, not on the words there.

Shapes: B sentences, Q queries per sentence, S source positions i, M = max_source, N = max_target target
positions t, H size of a decoder state s, E size of an encoder state, A inner size (rank).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .score import AttentionSizes, MultiplyAdds, Queries, Score

DEFAULT_POSITIONS = 100
"""M and N if the config leaves them out."""


class LocationBasedScore(Score):
    """e[i] for each of the first M source positions i, whatever the word: Luong et al. 2015, section 3.1.

    A source shorter than M uses the first S scores. In a longer source all words after the first M are
    ignored (Luong et al. 2015, footnote 6). The softmax runs over the remaining positions only, so that the
    weights of a short source sum to 1 too, which the paper leaves open.
    """

    needs_max_source = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.max_source = config.max_source or DEFAULT_POSITIONS

    def project_keys(self, states: Tensor) -> Tensor:
        """Return keys without content, (B, S, 0): ``score`` reads only how many there are."""
        return states[..., :0]

    def restrict_mask(self, mask: Tensor) -> Tensor:
        """Mask out positions from M on; since M is at least 1, each sentence of mask (B, S) keeps a True."""
        return mask & (torch.arange(mask.size(1), device=mask.device) < self.max_source)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return e for the S positions of keys (B, S, 0), (B, 1, Q, S); -inf from position M on."""
        scores = self.score_positions(queries)[..., : keys.size(1)]
        return pad(scores, (0, keys.size(1) - scores.size(-1)), value=float("-inf")).unsqueeze(1)

    def score_positions(self, queries: Queries) -> Tensor:
        """Return e for the first M source positions, (B, Q, M).

        Args:
            queries: Q queries per sentence.
        """
        raise NotImplementedError


class LocationScore(LocationBasedScore):
    """e[i] = (W s)[i] of source position i: Luong et al. 2015, eq. 8. W is M by H."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.query = nn.Linear(query_size, self.max_source, bias=False)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W s and the context."""
        return MultiplyAdds(target=query_size * (config.max_source or DEFAULT_POSITIONS), pair=value_size)

    def score_positions(self, queries: Queries) -> Tensor:
        """Return W s, (B, Q, M)."""
        scores: Tensor = self.query(queries.state)
        return scores


class StaticScore(LocationBasedScore):
    """e[i] = W[t, i] of target position t and source position i: the Random Synthesizer, Tay et al. 2021.

    W is a parameter, N by M, so that the weights softmax(W) are the same for all sentences of one length.
    Target positions from N on use the last row of W. The paper has self-attention, where t and i are
    positions in the same sentence.
    """

    needs_max_target = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        shape = (config.max_target or DEFAULT_POSITIONS, self.row_size(query_size, config))
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))

    @staticmethod
    def row_size(query_size: int, config: AttentionSizes) -> int:
        """Return the length M of a row of ``table``, which is W."""
        return config.max_source or DEFAULT_POSITIONS

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count the context; the score itself is a lookup."""
        return MultiplyAdds(pair=value_size)

    def score_positions(self, queries: Queries) -> Tensor:
        """Return row t of ``table`` for each query, (B, Q, M)."""
        return self.table[queries.position.clamp(max=self.table.size(0) - 1)]


class StaticFactorisedScore(StaticScore):
    """e[i] = (W_1 W_2)[t, i], a static score of rank A: the factorised Random Synthesizer, Tay et al. 2021.

    W_1 is N by A and W_2 is A by M.
    """

    has_inner_size = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.expand = nn.Linear(config.inner_size(query_size), self.max_source, bias=False)

    @staticmethod
    def row_size(query_size: int, config: AttentionSizes) -> int:
        """Return the length A of a row of ``table``, which is W_1."""
        return config.inner_size(query_size)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W_1[t] W_2 and the context; W_1[t] is a lookup."""
        return MultiplyAdds(
            target=config.inner_size(query_size) * (config.max_source or DEFAULT_POSITIONS), pair=value_size
        )

    def score_positions(self, queries: Queries) -> Tensor:
        """Return W_1[t] W_2 for each query, (B, Q, M)."""
        scores: Tensor = self.expand(super().score_positions(queries))
        return scores
