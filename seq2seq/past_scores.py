"""Scores that read the attention weights of the steps before.

Shapes: B sentences, Q queries per sentence, S source positions i, H size of a decoder state s, E size of an
encoder state h, A inner size, F filters.
"""

from torch import Tensor, cat, nn

from .additive_score import AdditiveScore
from .score import AttentionSizes, MultiplyAdds, Queries

NUM_FILTERS = 10
"""F, the number of filters over the previous weights, as in Chorowski et al. 2015."""
DEFAULT_KERNEL = 11
"""Width of these filters in source positions if the config leaves it out."""
MAX_FERTILITY = 2.0
"""N, the largest number of target words per source word: Tu et al. 2016, section 3.1.1."""
MIN_FERTILITY = 1e-3
"""The smallest one, so that a coverage is finite in half precision too."""


class LocationAwareScore(AdditiveScore):
    """e[i] = v . tanh(W_s s + W_h h[i] + W_f f[i]), f = F * a(t-1): Chorowski et al. 2015, eq. 8 and 9.

    F * a(t-1) is the convolution of the previous weights with F filters of ``kernel_size`` positions; beyond
    both ends of the sentence, and before the first step, the previous weights are 0. Attention that sees both
    content and location is "hybrid" in the paper.
    """

    has_kernel = needs_past = True
    supports_heads = False

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        width = config.kernel_size or DEFAULT_KERNEL
        self.filters = nn.Conv1d(1, NUM_FILTERS, width, padding=width // 2, bias=False)
        self.location = nn.Linear(NUM_FILTERS, config.inner_size(query_size), bias=False)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count the additive score, the filters and W_f f."""
        inputs = config.inner_size(query_size) + (config.kernel_size or DEFAULT_KERNEL)
        return super().multiply_adds(query_size, value_size, config) + MultiplyAdds(pair=NUM_FILTERS * inputs)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return e for the output of ``project_keys``, (B, S, A); (B, 1, Q, S)."""
        assert queries.past is not None
        last = queries.past.last.to(self.filters.weight.dtype)  # (B, 1, Q, S)
        features = self.filters(last.reshape(-1, 1, last.size(3))).transpose(1, 2)  # (B * Q, S, F)
        located = self.location(features).view(*queries.position.shape, last.size(3), -1)  # (B, Q, S, A)
        return self.compute_energy(self.query(queries.state).unsqueeze(2) + located, keys)


class CoverageScore(AdditiveScore):
    """e[i] = v . tanh(W_s s + W_h h[i] + w_c C[i]), C[i] = sum of a[i] before t / fertility: Tu et al. 2016.

    This is the linguistic coverage of section 3.1.1, one number per source word: the sum of the weights that
    it has received, divided by its fertility, 2 sigmoid(w_f . h[i]), the expected number of target words that
    it takes. The neural coverage of section 3.1.2, the state of a GRU per source word, is not
    built: linguistic coverage reads nothing but the running sum of the weights.
    """

    needs_past = True
    supports_heads = False

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.fertility = nn.Linear(value_size, 1, bias=False)
        self.coverage = nn.Linear(1, config.inner_size(query_size), bias=False)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count the additive score, w_f . h and w_c C."""
        added = MultiplyAdds(source=value_size, pair=config.inner_size(query_size))
        return super().multiply_adds(query_size, value_size, config) + added

    def project_keys(self, states: Tensor) -> Tensor:
        """Return the keys of the additive score and the fertility of each word, (B, S, A + 1)."""
        fertility = (MAX_FERTILITY * self.fertility(states).sigmoid()).clamp(min=MIN_FERTILITY)
        return cat((super().project_keys(states), fertility), dim=-1)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return e for the output of ``project_keys``, (B, S, A + 1); (B, 1, Q, S)."""
        assert queries.past is not None
        keys, fertility = keys[..., :-1], keys[..., -1]
        coverage = queries.past.total.squeeze(1) / fertility.unsqueeze(1)  # (B, Q, S)
        covered = self.coverage(coverage.unsqueeze(3).to(keys.dtype))  # (B, Q, S, A)
        return self.compute_energy(self.query(queries.state).unsqueeze(2) + covered, keys)
