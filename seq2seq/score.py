"""What every score is, who asks it, and what it costs.

Shapes: B sentences, Q queries each (T in training, K in beam search, 1 in greedy search), S source positions,
H decoder state, E encoder state, A key, C value.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor, nn


class AttentionSizes(Protocol):
    """The settings of an ``AttentionConfig`` that scores and scopes read."""

    @property
    def num_heads(self) -> int:
        """Number of heads."""

    @property
    def window(self) -> int | None:
        """Half-width of a local scope's window, in source positions."""

    @property
    def max_source(self) -> int | None:
        """Source positions known to a score by position."""

    @property
    def max_target(self) -> int | None:
        """Target positions known to a static score."""

    def inner_size(self, query_size: int) -> int:
        """Inner width of a score that has one, for decoder states ``query_size`` wide."""


class Queries(NamedTuple):
    """Who attends, and from where."""

    state: Tensor
    """Decoder states, (B, Q, H)."""
    position: Tensor
    """Target position of each, from 0, long, (B, Q)."""


@dataclass(frozen=True, kw_only=True)
class MultiplyAdds:
    """Multiply-adds of matrix products, by what they are spent on."""

    source: int = 0
    """For each source token, once a sentence."""
    target: int = 0
    """For each query."""
    pair: int = 0
    """For each source token of each query."""

    def __add__(self, other: "MultiplyAdds") -> "MultiplyAdds":
        """Add up the work of two parts."""
        return MultiplyAdds(
            source=self.source + other.source, target=self.target + other.target, pair=self.pair + other.pair
        )

    def total(self, src_len: float, tgt_len: float) -> float:
        """Multiply-adds for a source of ``src_len`` tokens and ``tgt_len`` queries."""
        return src_len * self.source + tgt_len * self.target + src_len * tgt_len * self.pair


class Score(nn.Module):
    """Rates keys against queries: ``project`` and ``transform`` once a sentence, ``score`` at every step."""

    has_inner_size = False
    """Has an inner width, ``AttentionConfig.attention_size``."""
    supports_heads = False
    """Can have several heads."""
    needs_max_source = False
    """Knows a source position by its number alone, so up to a largest one."""
    needs_max_target = False
    """Knows a target position by its number alone."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Check the sizes; encoder states are their own keys and values until a subclass maps them."""
        super().__init__()
        self.check(query_size, value_size, config)
        self.key: nn.Module = nn.Identity()
        self.value: nn.Module = nn.Identity()
        self.context_size = self.context_width(query_size, value_size, config)
        """Width C of a value, and so of a context."""

    @classmethod
    def check(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Refuse, by a ValueError, sizes that do not fit this score."""

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """Width C of a value; a state's own unless values are mapped."""
        return value_size

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count the multiply-adds of the score and of the weighted sum of the values."""
        raise NotImplementedError

    def project(self, states: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to keys (B, S, A)."""
        keys: Tensor = self.key(states)
        return keys

    def transform(self, states: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to values (B, S, C)."""
        values: Tensor = self.value(states)
        return values

    def reach(self, mask: Tensor) -> Tensor:
        """Narrow the mask of real tokens, (B, S), to those that this score knows."""
        return mask

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Rate keys (B, S, A) against Q queries: (B, heads, Q, S), unnormalised, padding included."""
        raise NotImplementedError


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View x (B, L, heads * d) as (B, heads, L, d)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)
