"""Scores that depend on the words, and ``SCORES``, the registry of all scores.

Shapes: B sentences, Q queries per sentence, S source positions, H size of a decoder state s, E size of an
encoder state h, A inner size. Most papers on attention differ only in the score e, so each class is one
formula. To add a score, write a class and register it (``register_score``).
"""

from collections.abc import Callable

from torch import Tensor, nn

from .additive_score import AdditiveScore
from .location_based_scores import LocationScore, StaticFactorisedScore, StaticScore
from .past_scores import CoverageScore, LocationAwareScore
from .score import (
    AttentionSizes,
    MultiplyAdds,
    Past,
    Queries,
    Score,
    check_heads,
    map_values,
    split_heads,
)
from .stepwise_products import StepwiseProduct

__all__ = [
    "SCORES",
    "AdditiveScore",
    "CoverageScore",
    "DotScore",
    "DynamicFactorisedScore",
    "GeneralScore",
    "LocationAwareScore",
    "LocationScore",
    "MultiplyAdds",
    "Past",
    "ProductScore",
    "Queries",
    "ScaledDotScore",
    "Score",
    "StaticFactorisedScore",
    "StaticScore",
    "list_scores",
    "register_score",
]


class ProductScore(Score):
    """e = f(s) . key(h): base class of the multiplicative scores (Luong et al. 2015, section 3.1)."""

    num_heads = 1

    def map_query(self, state: Tensor) -> Tensor:
        """Return f(s), (B, Q, A), for ``state`` s, (B, Q, H); s itself unless a subclass maps it."""
        return state

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return f(s) . key for keys (B, S, A), (B, heads, Q, S)."""
        query = split_heads(self.map_query(queries.state), self.num_heads)
        return query @ split_heads(keys, self.num_heads).transpose(2, 3)

    def stepwise(self, keys: Tensor, steps: int) -> Callable[[Queries], Tensor]:
        """Prepare a loop whose gradient of the keys is one product; arguments as for ``Score``."""
        product = StepwiseProduct(split_heads(keys, self.num_heads).transpose(2, 3), steps)
        return lambda queries: product(split_heads(self.map_query(queries.state), self.num_heads))


class DotScore(ProductScore):
    """e = s . h: Luong et al. 2015, section 3.1 "dot"; s and h must have one size."""

    @classmethod
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError if decoder and encoder states differ in size."""
        if query_size != value_size:
            raise ValueError(
                f'score "dot" needs decoder and encoder states of one size, got {query_size} and '
                f'{value_size}: use "general", which maps one to the other'
            )

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count s . h and the context."""
        return MultiplyAdds(pair=query_size + value_size)


class GeneralScore(ProductScore):
    """e = s . (W h): Luong et al. 2015, section 3.1 "general"; W h is computed once per sentence.

    Of several heads, each has its own slices of s and W h, and averages its own slice of the values W_v h,
    which are as wide as s.
    """

    supports_heads = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.num_heads = config.num_heads
        self.key = nn.Linear(value_size, query_size, bias=False)
        self.value = map_values(value_size, self.context_size, config)

    @classmethod
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError unless decoder states can be split evenly between the heads."""
        check_heads(config, hidden_size=query_size)

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """Return E for one head, H for several."""
        return value_size if config.num_heads == 1 else query_size

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W h, W_v h, s . (W h) and the context."""
        source = value_size * query_size * (1 if config.num_heads == 1 else 2)
        return MultiplyAdds(
            source=source, pair=query_size + cls.context_width(query_size, value_size, config)
        )


class DynamicFactorisedScore(ProductScore):
    """e = f(s) . g(h), f and g being networks with one tanh layer; compare Tay et al. 2021.

    Both networks are A wide, so the T by S scores of a sentence are the product of factors of rank A. Unlike
    in the factorised Synthesizers of the paper, one factor is computed from each sequence.
    """

    has_inner_size = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        rank = config.inner_size(query_size)
        self.query = nn.Sequential(nn.Linear(query_size, rank), nn.Tanh(), nn.Linear(rank, rank))
        self.key = nn.Sequential(nn.Linear(value_size, rank), nn.Tanh(), nn.Linear(rank, rank))

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count g(h), f(s), their product and the context."""
        rank = config.inner_size(query_size)
        source, target = (value_size + rank) * rank, (query_size + rank) * rank
        return MultiplyAdds(source=source, target=target, pair=rank + value_size)

    def map_query(self, state: Tensor) -> Tensor:
        """Return f(s), (B, Q, A), for ``state`` s, (B, Q, H)."""
        query: Tensor = self.query(state)
        return query


class ScaledDotScore(ProductScore):
    """e = f(s) . g(h) / sqrt(d_k), with values j(h): Vaswani et al. 2017, eq. 1 and section 3.2.2, in an RNN.

    f, g and j are linear with A outputs. Each head has its own d_k = A / heads of them, and its own weights.
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
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError unless the inner size can be split evenly between the heads."""
        check_heads(config, attention_size=config.inner_size(query_size))

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """Return A, the size of j(h)."""
        return config.inner_size(query_size)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count g(h), j(h), f(s), the dot products of all heads and the context."""
        size = config.inner_size(query_size)
        return MultiplyAdds(source=2 * value_size * size, target=query_size * size, pair=2 * size)

    def map_query(self, state: Tensor) -> Tensor:
        """Return f(s) / sqrt(d_k), (B, Q, A), for ``state`` s, (B, Q, H)."""
        query: Tensor = self.query(state) * self.scale
        return query


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
    "location-aware": LocationAwareScore,
    "coverage": CoverageScore,
}
"""Score classes by ``AttentionConfig.score``."""


def list_scores() -> list[str]:
    """Return the names of all attention scores, registered ones included."""
    return list(SCORES)


def register_score(name: str, cls: type[Score]) -> None:
    """Add an attention score, so that ``AttentionConfig(score=name)`` and ``score = name`` in a config work.

    Args:
        name: the name in configs, such as "cosine".
        cls: a subclass of ``Score`` that defines ``score`` and ``multiply_adds``.

    Raises:
        ValueError: the name is empty or taken, or ``cls`` is not such a subclass.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a score must be a non-empty string, found {name!r}")
    if name in SCORES:
        raise ValueError(f"the score {name!r} exists already: choose another name")
    if not (isinstance(cls, type) and issubclass(cls, Score)):
        raise ValueError(f"the score {name!r} must be a subclass of seq2seq.Score, found {cls!r:.80}")
    for method in ("score", "multiply_adds"):
        if getattr(cls, method).__qualname__ == f"Score.{method}":
            raise ValueError(f"{cls.__name__} must define {method}: see seq2seq.Score")
    SCORES[name] = cls
