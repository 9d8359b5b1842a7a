"""Attention over encoder states: score, scope and normaliser put together.

Shapes: B sentences, Q queries each (T in training, K in beam search, 1 in greedy search), S source positions,
H decoder state s, E encoder state h, A key, C value and context; i is a source position.
"""

from typing import NamedTuple

from torch import Tensor, nn

from .config import AttentionConfig
from .normalisers import NORMALISERS, NormaliserOutput
from .scopes import SCOPES, ScopeOutput
from .score import MultiplyAdds, Queries, split_heads
from .scores import SCORES

__all__ = ["Attention", "AttentionOutput", "MultiplyAdds", "Queries", "Source", "attention_work"]


class Source(NamedTuple):
    """What is attended to, one row a sentence."""

    keys: Tensor
    """Encoder states as the score wants them, (B, S, A)."""
    values: Tensor
    """What is averaged, (B, S, C)."""
    mask: Tensor
    """True where attention may look, (B, S)."""


class AttentionOutput(NamedTuple):
    """What the queries found."""

    context: Tensor
    """The values, averaged by the weights, (B, Q, C)."""
    weights: Tensor
    """Exactly 0 where there is nothing to see, (B, heads, Q, S)."""
    choice_logp: Tensor | None
    """Log-probability of the positions drawn, (B, Q); in training with normaliser "reinforce" only."""
    value: Tensor | None
    """The learned baseline of REINFORCE, (B, Q); then only."""


class Attention(nn.Module):
    """c = sum over i of a_i h_i, a = normalise(score(s, h_i) for each i in scope)."""

    def __init__(self, config: AttentionConfig, query_size: int, value_size: int) -> None:
        super().__init__()
        self.scorer = SCORES[config.score](query_size, value_size, config)
        self.scope = SCOPES[config.scope](query_size, config)
        self.normaliser = NORMALISERS[config.normaliser](query_size)
        self.context_size = self.scorer.context_size

    def remember(self, states: Tensor, mask: Tensor) -> Source:
        """Prepare states (B, S, E), once a sentence; each row of mask (B, S) begins with a True."""
        return Source(self.scorer.project(states), self.scorer.transform(states), self.scorer.reach(mask))

    def forward(self, queries: Queries, source: Source) -> AttentionOutput:
        """Attend from Q queries a sentence, each for itself."""
        view: ScopeOutput = self.scope(queries, source.mask)
        scores = self.scorer.score(queries, source.keys).masked_fill(~view.visible, float("-inf"))
        choice: NormaliserOutput = self.normaliser(scores, queries.state)
        weights = choice.weights if view.factor is None else choice.weights * view.factor
        return AttentionOutput(average(weights, source.values), weights, choice.logp, choice.value)


def average(weights: Tensor, values: Tensor) -> Tensor:
    """Weigh values (B, S, C) by weights (B, heads, Q, S), each head its own part of C: (B, Q, C)."""
    heads, weights = weights.size(1), weights.to(values.dtype)
    if heads == 1:
        return weights.squeeze(1) @ values
    return (weights @ split_heads(values, heads)).transpose(1, 2).flatten(2)


def attention_work(config: AttentionConfig, query_size: int, value_size: int) -> MultiplyAdds:
    """Count the multiply-adds of ``Attention(config, query_size, value_size)``, as in training."""
    score = SCORES[config.score].work(query_size, value_size, config)
    return score + SCOPES[config.scope].work(query_size) + NORMALISERS[config.normaliser].work(query_size)
