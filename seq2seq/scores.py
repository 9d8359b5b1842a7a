"""The scores, which are all in which many papers differ: those by content, and the table of all.

Shapes: B sentences, Q queries each, S source positions, H decoder state s, E encoder state h, A inner width.
Each class is one formula, with which its docstring begins; adding one takes a class and a line of ``SCORES``.
"""

from torch import Tensor, nn

from .location_based_scores import LocationScore, StaticFactorisedScore, StaticScore
from .score import AttentionSizes, MultiplyAdds, Queries, Score, split_heads

__all__ = [
    "SCORES",
    "AdditiveScore",
    "DotScore",
    "DynamicFactorisedScore",
    "GeneralScore",
    "LocationScore",
    "MultiplyAdds",
    "ProductScore",
    "Queries",
    "ScaledDotScore",
    "Score",
    "StaticFactorisedScore",
    "StaticScore",
]


class AdditiveScore(Score):
    """v . tanh(W_s s + W_h h): Bahdanau et al. 2015, appendix A.1.2.

    Luong et al. 2015 (section 3.1) write v . tanh(W [s; h]) and call it concat: the same score, W_s and W_h
    being the two halves of W. Only in this form is a state's share W_h h computed once a sentence.
    """

    has_inner_size = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        size = config.inner_size(query_size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.key = nn.Linear(value_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W_h h, W_s s, v . tanh(...) and the sum."""
        size = config.inner_size(query_size)
        return MultiplyAdds(source=value_size * size, target=query_size * size, pair=size + value_size)

    def project(self, states: Tensor) -> Tensor:
        """Compute 2 W_h h, (B, S, A)."""
        return 2 * super().project(states)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Compute v . tanh(W_s s + W_h h), (B, 1, Q, S).

        As tanh(x) = 2 sigmoid(2 x) - 1: of B Q S A sigmoids, torch computes each in a fifth of a tanh's time.
        """
        doubled = (2 * self.query(queries.state)).unsqueeze(2) + keys.unsqueeze(1)  # (B, Q, S, A)
        energy: Tensor = 2 * self.energy(doubled.sigmoid_()) - self.energy.weight.sum()
        return energy.squeeze(-1).unsqueeze(1)


class ProductScore(Score):
    """s . key(h): what the multiplicative scores share."""

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Compute s . keys, (B, 1, Q, S)."""
        return (queries.state @ keys.transpose(1, 2)).unsqueeze(1)


class DotScore(ProductScore):
    """s . h: Luong et al. 2015, section 3.1 "dot"."""

    @classmethod
    def check(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Refuse states of two sizes."""
        if query_size != value_size:
            raise ValueError(
                f'score "dot" needs decoder and encoder states of one size, got {query_size} and '
                f'{value_size}: use "general", which maps one to the other'
            )

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count s . h and the sum."""
        return MultiplyAdds(pair=query_size + value_size)


class GeneralScore(ProductScore):
    """s W h: Luong et al. 2015, section 3.1 "general"; W is applied to h, so once a sentence."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.key = nn.Linear(value_size, query_size, bias=False)

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W h, s . (W h) and the sum."""
        return MultiplyAdds(source=value_size * query_size, pair=query_size + value_size)


class DynamicFactorisedScore(ProductScore):
    """f(s) . g(h), f and g networks of one hidden tanh layer, A wide: T by S weights from factors of rank A.

    The lecture notes' f(Z_f) g(Z_g) X with the decoder states for Z_f and the encoder states for Z_g, and
    with a softmax over the product; compare the factorised Synthesizers of Tay et al. 2021.
    """

    has_inner_size = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        rank = config.inner_size(query_size)
        self.query = nn.Sequential(nn.Linear(query_size, rank), nn.Tanh(), nn.Linear(rank, rank))
        self.key = nn.Sequential(nn.Linear(value_size, rank), nn.Tanh(), nn.Linear(rank, rank))

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count g(h), f(s), their product and the sum."""
        rank = config.inner_size(query_size)
        source, target = (value_size + rank) * rank, (query_size + rank) * rank
        return MultiplyAdds(source=source, target=target, pair=rank + value_size)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Compute f(s) . keys, (B, 1, Q, S)."""
        return super().score(queries._replace(state=self.query(queries.state)), keys)


class ScaledDotScore(Score):
    """f(s) . g(h) / sqrt(d_k), the values being j(h): Vaswani et al. 2017, section 3.2, put into an RNN.

    f, g and j are linear, A wide; each head takes d_k = A / heads of it and has weights of its own.
    """

    has_inner_size = supports_heads = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.num_heads = config.num_heads
        self.scale = (self.context_size // self.num_heads) ** -0.5
        self.query = nn.Linear(query_size, self.context_size, bias=False)
        self.key = nn.Linear(value_size, self.context_size, bias=False)
        self.value = nn.Linear(value_size, self.context_size, bias=False)

    @classmethod
    def check(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Refuse heads of unequal width."""
        size = config.inner_size(query_size)
        if size % config.num_heads:
            raise ValueError(f"attention_size ({size}) must be a multiple of num_heads ({config.num_heads})")

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """The inner width: values are j(h)."""
        return config.inner_size(query_size)

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count g(h), j(h), f(s), the products of all heads together and their sums."""
        size = config.inner_size(query_size)
        return MultiplyAdds(source=2 * value_size * size, target=query_size * size, pair=2 * size)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Compute f(s) . keys / sqrt(d_k), (B, heads, Q, S)."""
        query: Tensor = split_heads(self.query(queries.state) * self.scale, self.num_heads)
        return query @ split_heads(keys, self.num_heads).transpose(2, 3)


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "concat": AdditiveScore,
    "dot": DotScore,
    "general": GeneralScore,
    "scaled-dot": ScaledDotScore,
    "location": LocationScore,
    "static": StaticScore,
    "static-factorised": StaticFactorisedScore,
    "dynamic-factorised": DynamicFactorisedScore,
}
"""From ``AttentionConfig.score`` to a score."""
