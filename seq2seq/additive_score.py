"""The additive score.

Shapes: B sentences, Q queries per sentence, S source positions, H size of a decoder state s, E size of an
encoder state h, A inner size.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .half_precision import half_tanh_, is_half
from .score import AttentionSizes, MultiplyAdds, Queries, Score, check_heads, map_values


class AdditiveScore(Score):
    """e = v . tanh(W_s s + W_h h): Bahdanau et al. 2015, appendix A.1.2.

    Luong et al. 2015 (section 3.1) write v . tanh(W [s; h]) and call it "concat": the same score, W_s and W_h
    being the left and the right half of W. The split lets W_h h be computed once per sentence.

    Of several heads, each has its own slices of W_s, W_h and v, A / heads wide, and averages its own slice of
    the values W_v h, A in size (Chen et al. 2018).
    """

    has_inner_size = supports_heads = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        size, self.num_heads = config.inner_size(query_size), config.num_heads
        self.query = nn.Linear(query_size, size, bias=False)
        self.key = nn.Linear(value_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)
        self.value = map_values(value_size, self.context_size, config)

    @classmethod
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError unless the inner size can be split evenly between the heads."""
        check_heads(config, attention_size=config.inner_size(query_size))

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """Return E for one head, A for several."""
        return value_size if config.num_heads == 1 else config.inner_size(query_size)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W_h h, W_v h, W_s s, v . tanh(...) and the context."""
        size, heads = config.inner_size(query_size), config.num_heads
        source = value_size * size * (2 if heads > 1 else 1)
        context = cls.context_width(query_size, value_size, config)
        return MultiplyAdds(source=source, target=query_size * size, pair=heads * size + context)

    def project_keys(self, states: Tensor) -> Tensor:
        """Return 2 W_h h, (B, S, A), or W_h h in half precision; see ``compute_energy`` for the factor 2."""
        keys = super().project_keys(states)
        return keys if is_half(keys) else 2 * keys

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return v . tanh(W_s s + W_h h) for the output of ``project_keys``, (B, S, A); (B, 1, Q, S)."""
        return self.compute_energy(self.query(queries.state).unsqueeze(2), keys)

    def compute_energy(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute v . tanh(query + W_h h), as tanh(x) = 2 sigmoid(2 x) - 1.

        Torch takes a fifth of the time for a sigmoid. In half precision this would lose precision; see
        ``half_precision``.

        Args:
            query: W_s s and whatever is added to it, (B, Q, 1 or S, A).
            keys: output of ``project_keys``, (B, S, A).

        Returns:
            The scores, (B, heads, Q, S).
        """
        vectors = self.energy.weight  # v, (1, A)
        if self.num_heads > 1:  # a matrix with v of each head in a row of its own, and 0 elsewhere
            vectors = torch.block_diag(*vectors.chunk(self.num_heads, dim=1))  # type: ignore[no-untyped-call]
        if is_half(keys):
            energy = linear(half_tanh_(query + keys.unsqueeze(1)), vectors)  # (B, Q, S, heads)
        else:
            doubled = 2 * query + keys.unsqueeze(1)  # (B, Q, S, A)
            energy = 2 * linear(doubled.sigmoid_(), vectors) - vectors.sum(1)
        return energy.permute(0, 3, 1, 2)
