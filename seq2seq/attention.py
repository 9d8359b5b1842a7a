"""Attention over encoder states, composed of a score, a scope and a normaliser.

Shapes: B sentences, Q queries per sentence (T in training, K in beam search, 1 in greedy search), S source
positions i, H size of a decoder state s, E size of an encoder state h, A size of a key, C size of a value.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import AttentionConfig
from .fast import StepwiseProduct
from .normalisers import NORMALISERS, NormaliserOutput
from .scopes import SCOPES, ScopeOutput
from .scores import SCORES, MultiplyAdds, Past, Queries, split_heads

# Self-attention of an RNN to its own earlier states.
#
# Shapes: B sentences, Q states that attend, P earlier states, S source positions, D directions, H size of a
# state of one direction.


class SelfAttention(nn.Module):
    """h'(t) = tanh(W [h(t); c(t)]), c(t) = sum over i < t of a(i, t) h(i), a(t) = softmax of h(i) . h(t).

    c(1) is 0, as there are no earlier states. The recurrence itself continues with h, not with h': all states
    are known before any of them attends. In the LSTMN of Cheng et al. 2016 (section 3), c takes the place of
    h(t - 1) in the recurrence.
    """

    def __init__(self, size: int) -> None:
        """Create the matrix W.

        Args:
            size: H, the size of a state.
        """
        super().__init__()
        self.join = nn.Linear(2 * size, size, bias=False)

    def forward(self, states: Tensor, earlier: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from states to earlier states and combine them.

        Args:
            states: h(t), (..., Q, H).
            earlier: h(i), (..., P, H).
            visible: True where state t may attend to i, (..., Q, P).

        Returns:
            The combined states h' (..., Q, H) and the weights (..., Q, P). The weights of a state that may
            attend to nothing are all 0.
        """
        scores = states @ earlier.transpose(-1, -2)
        # Not -inf: the softmax of a state that may attend to nothing would be NaN.
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~visible, 0)
        context = weights.to(earlier.dtype) @ earlier
        combined: Tensor = self.join(torch.cat((states, context), dim=-1))
        return combined.tanh(), weights


class EncoderSelfAttention(nn.Module):
    """One ``SelfAttention`` per direction of an encoder, each over what this direction has read before."""

    def __init__(self, size: int, directions: tuple[bool, ...]) -> None:
        """Create one self-attention per direction.

        Args:
            size: H, the size of a state of one direction.
            directions: for each direction, whether it reads from left to right.
        """
        super().__init__()
        self.directions = directions
        self.parts = nn.ModuleList(SelfAttention(size) for _ in directions)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within each direction.

        Args:
            states: encoder states in source order, the directions concatenated, (B, S, D * H).
            mask: True for real tokens, (B, S).

        Returns:
            The combined states (B, S, D * H), which are 0 in the padding as ``states`` are, and the weights
            (B, D, S, S).
        """
        both_real = mask.unsqueeze(1) & mask.unsqueeze(2)  # (B, S, S)
        outputs = [
            part(half, half, both_real.tril(-1) if forward else both_real.triu(1))
            for part, half, forward in zip(
                self.parts, states.chunk(len(self.parts), dim=-1), self.directions, strict=True
            )
        ]
        combined, weights = zip(*outputs, strict=True)
        return torch.cat(combined, dim=-1), torch.stack(weights, dim=1)


__all__ = [
    "Attention",
    "AttentionOutput",
    "MultiplyAdds",
    "Past",
    "Queries",
    "Source",
    "attention_multiply_adds",
]


class Source(NamedTuple):
    """Keys, values and mask of the source sentences, computed once per sentence."""

    keys: Tensor
    """Encoder states as mapped by ``Score.project_keys``, (B, S, A)."""
    values: Tensor
    """Encoder states as mapped by ``Score.project_values``, (B, S, C)."""
    mask: Tensor
    """True where a query may attend, (B, S)."""


class AttentionOutput(NamedTuple):
    """Context vectors and attention weights of the queries."""

    context: Tensor
    """Weighted sums of the values, (B, Q, C)."""
    weights: Tensor
    """Attention weights, exactly 0 at masked positions, (B, heads, Q, S)."""
    choice_logp: Tensor | None
    """Log-probability of the sampled positions, (B, Q); only with normaliser "reinforce" in training."""
    value: Tensor | None
    """Baseline of REINFORCE, (B, Q); only with normaliser "reinforce" in training."""
    entropy: Tensor | None = None
    """Weighted entropy of the choice, (B, Q); only with normaliser "reinforce" and ``entropy_weight``."""


class Products(NamedTuple):
    """The two products with keys and values."""

    score: Callable[[Queries], Tensor]
    """From queries to scores, (B, heads, Q, S)."""
    weighted_sum: Callable[[Tensor], Tensor]
    """From attention weights (B, heads, Q, S) to context vectors, (B, Q, C)."""


class Attention(nn.Module):
    """c = sum over i of a_i h_i, a = normalise(score(s, h_i) for i in scope): Bahdanau et al. 2015, eq. 5.

    h_i are the encoder states and s is the decoder state that attends; some scores map h_i first. A
    temperature other than 1 divides the scores before they are normalised.

    Examples:
        >>> attention = Attention(AttentionConfig(score="general"), query_size=8, value_size=10)
        >>> source = attention.remember(states, mask)  # (B, S, 10) and (B, S)
        >>> context = attention(Queries(state, position), source).context  # (B, Q, 10) for state (B, Q, 8)
    """

    def __init__(self, config: AttentionConfig, query_size: int, value_size: int) -> None:
        """Create an attention.

        Args:
            config: names of the score, scope and normaliser, and their sizes.
            query_size: H, the size of a decoder state.
            value_size: E, the size of an encoder state.

        Raises:
            ValueError: the score does not accept these sizes.
        """
        super().__init__()
        self.scorer = SCORES[config.score](query_size, value_size, config)
        self.scope = SCOPES[config.scope](query_size, config)
        self.normaliser = NORMALISERS[config.normaliser](query_size, config.reinforce)
        self.num_heads, self.temperature = config.num_heads, config.temperature
        self.needs_past = self.scorer.needs_past or self.normaliser.needs_past
        """Whether a step reads the weights of the steps before it."""
        self.context_size = self.scorer.context_size
        """C, the size of a context vector."""

    def remember(self, states: Tensor, mask: Tensor) -> Source:
        """Compute keys and values, once per sentence.

        Args:
            states: encoder states h, (B, S, E).
            mask: True for real tokens, which come first, at least one per sentence, (B, S).
        """
        return Source(
            self.scorer.project_keys(states),
            self.scorer.project_values(states),
            self.scorer.restrict_mask(mask),
        )

    def first_past(self, source: Source, queries: int) -> Past:
        """Return the past before the first step, for a number of queries per sentence.

        Args:
            source: output of ``remember``.
            queries: Q.
        """
        batch, length = source.mask.shape
        dtype = torch.promote_types(source.values.dtype, torch.float32)
        zeros = source.values.new_zeros(batch, self.num_heads, queries, length, dtype=dtype)
        return Past(self.normaliser.first_weights(zeros), zeros)

    def forward(self, queries: Queries, source: Source, products: Products | None = None) -> AttentionOutput:
        """Attend from Q queries per sentence, which do not influence each other.

        Args:
            queries: decoder states (B, Q, H), their target positions (B, Q) and, if this attention
                ``needs_past``, the weights of their earlier steps.
            source: output of ``remember``.
            products: other ways to compute the same; see ``stepwise``.
        """
        if self.needs_past and queries.past is None:
            queries = queries._replace(past=self.first_past(source, queries.state.size(1)))
        if products is None:
            score = partial(self.scorer.score, keys=source.keys)
            products = Products(score, partial(weighted_sum, values=source.values))
        scope: ScopeOutput = self.scope(queries, source.mask)
        scores = products.score(queries)
        if self.temperature != 1:
            scores = scores / self.temperature
        scores = scores.masked_fill(~scope.visible, float("-inf"))
        normalised: NormaliserOutput = self.normaliser(scores, queries)
        weights = normalised.weights if scope.factor is None else normalised.weights * scope.factor
        context = products.weighted_sum(weights)
        return AttentionOutput(context, weights, normalised.logp, normalised.value, normalised.entropy)

    def stepwise(self, source: Source, steps: int) -> Callable[[Queries], AttentionOutput]:
        """Prepare a loop over time steps in training, with one gradient product for all of them.

        Args:
            source: output of ``remember``.
            steps: number of time steps.

        Returns:
            ``forward`` for the one query per sentence of a step, to be called once per step, in order.
        """
        values = StepwiseProduct(split_heads(source.values, self.num_heads), steps)
        products = Products(
            score=self.scorer.stepwise(source.keys, steps),
            weighted_sum=lambda weights: values(weights).transpose(1, 2).flatten(2),
        )
        return partial(self, source=source, products=products)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum the values with the attention weights; each head sums its own slice of the C features.

    Args:
        weights: attention weights, (B, heads, Q, S).
        values: (B, S, C), C being a multiple of heads.

    Returns:
        Context vectors, the heads concatenated, (B, Q, C).
    """
    heads, weights = weights.size(1), weights.to(values.dtype)
    if heads == 1:
        return weights.squeeze(1) @ values
    return (weights @ split_heads(values, heads)).transpose(1, 2).flatten(2)


def attention_multiply_adds(config: AttentionConfig, query_size: int, value_size: int) -> MultiplyAdds:
    """Count the multiply-adds of ``Attention(config, query_size, value_size)`` in training."""
    score = SCORES[config.score].multiply_adds(query_size, value_size, config)
    scope = SCOPES[config.scope].multiply_adds(query_size)
    return score + scope + NORMALISERS[config.normaliser].multiply_adds(query_size, config.reinforce)
