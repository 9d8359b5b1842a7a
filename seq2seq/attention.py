"""Attention over encoder states: a score, a scope, which says where a query may attend, and a normaliser.

Shapes: B sentences, Q queries per sentence (T in training, K in beam search, 1 in greedy search), S source
positions i from 0 on, H size of a decoder state s, E size of an encoder state h, A size of a key, C size of a
value.
"""

from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import AttentionConfig
from .normalisers import NORMALISERS, Choices
from .scores import SCORES, Past, ProductScore, Queries, split_heads

DEFAULT_WINDOW = 10
"""Half-width D of a window if the config leaves it out, as in Luong et al. 2015, section 3.2."""


class GlobalScope(nn.Module):
    """All source positions: Bahdanau et al. 2015, and Luong et al. 2015, section 3.1."""

    def __init__(self, query_size: int, config: AttentionConfig) -> None:
        super().__init__()

    def forward(self, queries: Queries, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Select the source positions that each query can attend to, by a mask (B, S) of real tokens.

        Returns True where a query may attend, at least once per query, and a factor of its normalised
        weights, None for 1; both broadcast to (B, heads, Q, S).
        """
        return mask[:, None, None], None


class MonotonicScope(GlobalScope):
    """Positions |i - p| <= D, p = min(t, S - 1): local-m of Luong et al. 2015, section 3.2.

    t is the target position of the query and S the length of its source sentence, at most ``max_source``. The
    paper sets p = t; the minimum keeps the window at the last word, so that it is never empty.
    """

    def __init__(self, query_size: int, config: AttentionConfig) -> None:
        super().__init__(query_size, config)
        self.half_width = config.window or DEFAULT_WINDOW

    def forward(self, queries: Queries, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Select the window around the query's own target position; arguments as for ``GlobalScope``."""
        centre = queries.position.minimum(mask.sum(1, keepdim=True) - 1)
        visible = mask.unsqueeze(1) & (_offsets(centre, mask).abs() <= self.half_width)
        return visible.unsqueeze(1), None


class PredictiveScope(MonotonicScope):
    """Positions |i - p| <= D, p = S sigmoid(v . tanh(W s)): local-p of Luong et al. 2015, eq. 9 and 10.

    S is the length of the source sentence, at most ``max_source``. After the softmax over the window, the
    weights are multiplied by exp(-(i - p)^2 / (2 sigma^2)) with sigma = D / 2, so that they sum to at most 1.
    Since p is in [0, S] and D is at least 1, no window is empty.
    """

    def __init__(self, query_size: int, config: AttentionConfig) -> None:
        super().__init__(query_size, config)
        self.hidden = nn.Linear(query_size, query_size, bias=False)
        self.energy = nn.Linear(query_size, 1, bias=False)

    def forward(self, queries: Queries, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Select the window around the predicted position p; arguments as for ``GlobalScope``."""
        energy = self.energy(self.hidden(queries.state).tanh()).squeeze(-1)  # (B, Q)
        # Under autocast it is bfloat16, which cannot represent fractions of a position above 128.
        energy = energy.to(torch.promote_types(energy.dtype, torch.float32))
        offsets = _offsets(mask.sum(1, keepdim=True) * energy.sigmoid(), mask)
        visible = mask.unsqueeze(1) & (offsets.abs() <= self.half_width)
        factor = (-2 * (offsets / self.half_width) ** 2).exp()  # sigma = half_width / 2
        return visible.unsqueeze(1), factor.unsqueeze(1)


def _offsets(centre: Tensor, mask: Tensor) -> Tensor:
    return torch.arange(mask.size(1), device=mask.device) - centre.unsqueeze(-1)


SCOPES: dict[str, type[GlobalScope]] = {
    "global": GlobalScope,
    "local-m": MonotonicScope,
    "local-p": PredictiveScope,
}


class Source(NamedTuple):
    """Keys, values and mask of the source sentences, computed once per sentence."""

    keys: Tensor
    """Encoder states as mapped by ``Score.project_keys``, (B, S, A)."""
    values: Tensor
    """Encoder states as mapped by ``Score.project_values``, (B, S, C)."""
    mask: Tensor


class AttentionOutput(NamedTuple):
    """Context vectors and attention weights of the queries."""

    context: Tensor
    """Weighted sums of the values, (B, Q, C)."""
    weights: Tensor
    """Attention weights, exactly 0 at masked positions, (B, heads, Q, S)."""
    choices: Choices | None = None


class Attention(nn.Module):
    """c = sum over i of a_i h_i, a = normalise(score(s, h_i) for i in scope): Bahdanau et al. 2015, eq. 5.

    h_i are the encoder states and s is the decoder state that attends.

    Example::

        attention = Attention(AttentionConfig(score="general"), query_size=8, value_size=10)
        source = attention.remember(states, mask)  # (B, S, 10) and (B, S)
        context = attention(Queries(state, position), source).context  # (B, Q, 10) for state (B, Q, 8)
    """

    def __init__(self, config: AttentionConfig, query_size: int, value_size: int) -> None:
        """Create an attention of states (..., query_size) to (..., value_size), or raise a ValueError."""
        super().__init__()
        self.scorer = SCORES[config.score](query_size, value_size, config)
        self.scope = SCOPES[config.scope](query_size, config)
        self.normaliser = NORMALISERS[config.normaliser](query_size, config.reinforce)
        self.query_size, self.value_size = query_size, value_size
        self.num_heads, self.temperature = config.num_heads, config.temperature
        self.warmup, self.is_uniform = config.attention_warmup, False
        self.needs_past = self.scorer.needs_past or self.normaliser.needs_past
        self.is_product = type(self.scorer).score is ProductScore.score
        """Whether the scores are ``product_scores`` of what the scorer makes of queries and keys."""
        self.context_size = self.scorer.context_size

    def begin_update(self, update: int) -> None:
        """Prepare for an update of training, counted from 1: the first ones have uniform attention."""
        self.is_uniform = update <= self.warmup

    def remember(self, states: Tensor, mask: Tensor) -> Source:
        """Compute keys and values of states (B, S, E); mask (B, S) is True for real tokens."""
        return Source(
            self.scorer.project_keys(states),
            self.scorer.project_values(states),
            self.scorer.restrict_mask(mask),
        )

    def first_past(self, source: Source, queries: int) -> Past:
        """Return the past before the first step, for a number of queries per sentence."""
        batch, length = source.mask.shape
        dtype = torch.promote_types(source.values.dtype, torch.float32)
        zeros = source.values.new_zeros(batch, queries, self.num_heads, length, dtype=dtype)
        return Past(self.normaliser.first_weights(zeros), zeros)

    def forward(self, queries: Queries, source: Source) -> AttentionOutput:
        """Attend from Q queries per sentence, which do not influence each other."""
        if self.needs_past and queries.past is None:
            queries = queries._replace(past=self.first_past(source, queries.state.size(1)))
        visible, factor = self.scope(queries, source.mask)
        scores = self.scorer.score(queries, source.keys)
        batch, length = source.mask.shape
        if scores.shape != (shape := (batch, self.num_heads, queries.state.size(1), length)):
            raise ValueError(
                f"{type(self.scorer).__name__}.score returns shape {tuple(scores.shape)}, not {shape}: "
                "(sentences, heads, queries, source positions)"
            )
        if self.temperature != 1:
            scores = scores / self.temperature
        if self.is_uniform and self.training:
            scores = scores * 0.0  # the gradient is 0, and not None, because processes sum it
        weights, choices = self.normaliser(scores.masked_fill(~visible, float("-inf")), queries)
        if factor is not None:
            weights = weights * factor
        return AttentionOutput(weighted_sum(weights, source.values), weights, choices)


def join_gradients(attention: Attention, source: Source, steps: int) -> Source:
    """Return ``source`` for a loop over ``steps`` with one query per sentence and step."""
    return source


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum values (B, S, C) with weights (B, heads, Q, S): (B, Q, C); each head sums its own slice of C."""
    context = weights.to(values.dtype) @ split_heads(values, weights.size(1))
    return context.transpose(1, 2).flatten(2)


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from .fast import join_gradients as join_gradients
    from .fast import weighted_sum
