"""Base class of attention scores, their queries, and their cost in multiply-adds.

Shapes: B sentences, Q queries per sentence (T in training, K in beam search, 1 in greedy search), S source
positions, H size of a decoder state, E size of an encoder state, A size of a key, C size of a value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from torch import Tensor, nn


class AttentionSizes(Protocol):
    """The settings of an ``AttentionConfig`` that scores and scopes read."""

    @property
    def num_heads(self) -> int:
        """Number of heads."""

    @property
    def window(self) -> int | None:
        """Half-width of the window of a local scope, in source positions."""

    @property
    def kernel_size(self) -> int | None:
        """Width of the filters over the previous attention weights, in source positions."""

    @property
    def max_source(self) -> int | None:
        """Number of source positions that a location-based score distinguishes."""

    @property
    def max_target(self) -> int | None:
        """Number of target positions that a static score distinguishes."""

    def inner_size(self, query_size: int) -> int:
        """Return the inner size A of a score that has one, for decoder states of ``query_size``."""


class Past(NamedTuple):
    """Attention weights of the earlier steps of each query; in a decoder state (B, K, heads, S) each."""

    last: Tensor
    """Weights of the step before, (B, heads, Q, S)."""
    total: Tensor
    """Sum of the weights of all steps before, 0 before the first one, (B, heads, Q, S)."""

    def add(self, weights: Tensor) -> "Past":
        """Return the past of the next step, after a step with these weights, (B, heads, Q, S)."""
        return Past(weights.to(self.last.dtype), self.total + weights)

    def swap(self) -> "Past":
        """Exchange the dimensions of heads and queries, as between attention and the decoder's state."""
        return Past(self.last.transpose(1, 2), self.total.transpose(1, 2))


class Queries(NamedTuple):
    """Decoder states that attend to the source, with their target positions."""

    state: Tensor
    """Decoder states s, (B, Q, H)."""
    position: Tensor
    """Target position of each query, counted from 0, long, (B, Q)."""
    past: Past | None = None
    """Weights of the earlier steps, for attention that ``needs_past``; None: there were no earlier steps."""


@dataclass(frozen=True, kw_only=True)
class MultiplyAdds:
    """Number of multiply-adds in matrix products, split by how often they are computed."""

    source: int = 0
    """Per source token, computed once per sentence."""
    target: int = 0
    """Per query."""
    pair: int = 0
    """Per pair of a source token and a query."""

    def __add__(self, other: "MultiplyAdds") -> "MultiplyAdds":
        """Add the counts of two parts."""
        return MultiplyAdds(
            source=self.source + other.source, target=self.target + other.target, pair=self.pair + other.pair
        )

    def total(self, src_len: float, tgt_len: float) -> float:
        """Return the number of multiply-adds for ``src_len`` source tokens and ``tgt_len`` queries."""
        return src_len * self.source + tgt_len * self.target + src_len * tgt_len * self.pair


class Score(nn.Module):
    """e = score(s, h): the base class of all scores, which rate encoder states h against decoder states s.

    ``project_keys`` and ``project_values`` are called once per sentence, ``score`` at every decoding step. A
    subclass must define ``score`` and ``multiply_adds``; the first paragraph of its docstring is its formula
    and source, which ``attnbench models`` prints.
    """

    has_inner_size = False
    """Whether the score has an inner size, ``AttentionConfig.attention_size``."""
    supports_heads = False
    """Whether ``AttentionConfig.num_heads`` may be above 1."""
    needs_max_source = False
    """Whether it has parameters per source position, so that ``AttentionConfig.max_source`` limits them."""
    needs_past = False
    """Whether it reads ``Queries.past``, the weights of earlier steps."""
    has_kernel = False
    """Whether it filters the previous weights, with filters ``AttentionConfig.kernel_size`` wide."""
    needs_max_target = False
    """Whether it has parameters per target position, so that ``AttentionConfig.max_target`` limits them."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Create a score whose keys and values are the encoder states themselves; subclasses may map them.

        Args:
            query_size: H, the size of a decoder state.
            value_size: E, the size of an encoder state.
            config: heads, positions and inner size.

        Raises:
            ValueError: these sizes do not fit this score.
        """
        super().__init__()
        self.check_sizes(query_size, value_size, config)
        self.key: nn.Module = nn.Identity()
        self.value: nn.Module = nn.Identity()
        self.context_size = self.context_width(query_size, value_size, config)
        """C, the size of a value and so of a context vector."""

    @classmethod
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError if these sizes do not fit this score; arguments as for the class."""

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """Return C, the size of a value; arguments as for the class."""
        return value_size

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count the multiply-adds of the score and of the context (the weighted sum of the values)."""
        raise NotImplementedError

    def project_keys(self, states: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to keys (B, S, A)."""
        keys: Tensor = self.key(states)
        return keys

    def project_values(self, states: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to values (B, S, C)."""
        values: Tensor = self.value(states)
        return values

    def restrict_mask(self, mask: Tensor) -> Tensor:
        """Restrict mask (B, S), True for real tokens, to the source positions that this score can rate."""
        return mask

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Rate keys against queries; padding is rated too and masked by the caller.

        Args:
            queries: Q queries per sentence.
            keys: output of ``project_keys``, (B, S, A).

        Returns:
            Unnormalised scores e, (B, heads, Q, S).
        """
        raise NotImplementedError

    def stepwise(self, keys: Tensor, steps: int) -> Callable[[Queries], Tensor]:
        """Prepare a loop over time steps; a subclass may compute the keys' gradient once for all of them.

        Args:
            keys: output of ``project_keys``, (B, S, A).
            steps: number of time steps.

        Returns:
            A function from the one query per sentence of a step to its scores (B, heads, 1, S), to be called
            once per step, in order.
        """
        return partial(self.score, keys=keys)


def map_values(value_size: int, context_size: int, config: AttentionSizes) -> nn.Module:
    """Create the map of the values: the identity for one head, a matrix for several."""
    return nn.Identity() if config.num_heads == 1 else nn.Linear(value_size, context_size, bias=False)


def check_heads(config: AttentionSizes, **sizes: int) -> None:
    """Raise a ValueError unless each size can be split evenly between the heads."""
    for name, size in sizes.items():
        if size % config.num_heads:
            raise ValueError(f"{name} ({size}) must be a multiple of num_heads ({config.num_heads})")


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View x (B, L, heads * d) as (B, heads, L, d)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)
