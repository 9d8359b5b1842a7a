"""Attention over encoder states: a score, a scope, which says where a query may attend, and a normaliser.

Soft attention averages all visible positions; hard attention selects one of them.

Shapes: B sentences, Q queries per sentence (T in training, K in beam search, 1 in greedy search), S source
positions i from 0 on, H size of a decoder state s, E size of an encoder state h, A size of a key, C size of a
value.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from .config import DEFAULT_REINFORCE, AttentionConfig, ReinforceConfig
from .fast import StepwiseProduct
from .scores import SCORES, Past, ProductScore, Queries, split_heads

DEFAULT_WINDOW = 10
"""Half-width D of a window if the config leaves it out, as in Luong et al. 2015, section 3.2."""


class GlobalScope(nn.Module):
    """All source positions: Bahdanau et al. 2015, and Luong et al. 2015, section 3.1."""

    def __init__(self, query_size: int, config: AttentionConfig) -> None:
        """Create a scope.

        Args:
            query_size: H, the size of a decoder state.
            config: the half-width of the window.
        """
        super().__init__()

    def forward(self, queries: Queries, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Select the source positions that each query can attend to.

        Args:
            queries: Q queries per sentence.
            mask: True for real tokens, which come first, at least one per sentence, (B, S).

        Returns:
            True where a query may attend, at least once per query, and a factor of its normalised weights,
            None for 1; both broadcast to (B, heads, Q, S).
        """
        return mask[:, None, None], None


class MonotonicScope(GlobalScope):
    """Positions |i - p| <= D, p = min(t, S - 1): local-m of Luong et al. 2015, section 3.2.

    t is the target position of the query and S the length of its source sentence. The paper sets p = t. The
    minimum keeps the window at the last word if the target is longer than the source, so that no window is
    empty.
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

    S is the length of the source sentence. After the softmax over the window, the weights are multiplied by
    exp(-(i - p)^2 / (2 sigma^2)) with sigma = D / 2, as in the paper, so that they sum to at most 1. Since
    p is in [0, S] and D is at least 1, no window is empty.
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
    """Return i - p for every position i of ``mask`` (B, S) and centre p (B, Q), (B, Q, S)."""
    return torch.arange(mask.size(1), device=mask.device) - centre.unsqueeze(-1)


SCOPES: dict[str, type[GlobalScope]] = {
    "global": GlobalScope,
    "local-m": MonotonicScope,
    "local-p": PredictiveScope,
}
"""Scope classes by ``AttentionConfig.scope``."""


# Normalisers, and sparsemax and 1.5-entmax, sparse relatives of the softmax, computed exactly by sorting.
#
# Both are the distribution p that maximises p . z + H(p), each for a Tsallis entropy H of its own; the
# softmax is that of Shannon's entropy. Entries far enough below the largest one get a probability of exactly
# 0. Both find the entries above tau, the support, by sorting, and then compute tau from these alone, so that
# autograd gives all derivatives. Shapes: n entries z in the last dimension; -inf marks those left out.


def sparsemax(z: Tensor) -> Tensor:
    """Return max(z - tau, 0), tau being such that the sum is 1: Martins and Astudillo 2016, eq. 2 to 4."""
    z, ordered, lengths = _shift_and_sort(z)
    support = _find_support(z, ordered, (cumulative_sum(ordered) - 1) / lengths)
    tau = ((z * support).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
    return (z - tau).clamp(min=0) * support


def entmax15(z: Tensor) -> Tensor:
    """Return max(z / 2 - tau, 0)^2, tau being such that the sum is 1: Peters et al. 2019, section 3."""
    z, ordered, lengths = _shift_and_sort(z / 2)
    mean = cumulative_sum(ordered) / lengths
    variance = cumulative_sum(ordered.square()) / lengths - mean.square()
    support = _find_support(z, ordered, mean - (1 / lengths - variance).clamp(min=0).sqrt())
    size = support.sum(-1, keepdim=True, dtype=z.dtype)
    mean = (z * support).sum(-1, keepdim=True) / size
    variance = ((z - mean).square() * support).sum(-1, keepdim=True) / size
    tau = mean - (1 / size - variance).sqrt()  # at least 1 / size below the mean
    return ((z - tau).clamp(min=0) * support).square()


def cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(-1) of finite x, (..., n); torch's own has no deterministic form on a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        prefixes = x.new_ones(x.size(-1), x.size(-1)).tril()
        return (x.unsqueeze(-2) * prefixes).sum(-1)
    return x.cumsum(-1)


def _shift_and_sort(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return z with the largest at 0, z in descending order, and the lengths 1 to n of its prefixes.

    All below -2 are raised to it; tau is at least -1, so these get 0 anyway.
    """
    z = (z - z.detach().amax(-1, keepdim=True)).clamp(min=-2)
    lengths = torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)
    return z, z.detach().sort(-1, descending=True).values, lengths


def _find_support(z: Tensor, ordered: Tensor, tau: Tensor) -> Tensor:
    """Return which z are above tau, given for each prefix; the last one that is below its entry is right."""
    size = (tau < ordered).sum(-1, keepdim=True).clamp(min=1)  # 0 where a score is NaN
    return z > tau.gather(-1, size - 1)


class Choices(NamedTuple):
    """Source positions that hard attention has sampled, for the loss."""

    logp: Tensor
    """Log-probability of the sampled positions, summed over the heads, times lambda_r, (B, Q)."""
    value: Tensor
    """Baseline of REINFORCE: the reward predicted before sampling, (B, Q)."""
    entropy: Tensor | None = None
    """Entropy of the choice, summed over the heads, times lambda_e, (B, Q); None if lambda_e is 0."""
    average: Tensor | None = None
    """Moving average of the rewards, (1,), which the loss changes in place; only with that baseline."""


class NormaliserOutput(NamedTuple):
    """Attention weights, and what the loss needs of sampled ones."""

    weights: Tensor
    """Attention weights, which sum to 1 over S, with "monotonic" to at most 1, (B, heads, Q, S)."""
    choices: Choices | None = None
    """The sampled positions; only with normaliser "reinforce" in training."""


class Softmax(nn.Module):
    """a = softmax(e): soft attention, Bahdanau et al. 2015, eq. 6."""

    needs_past = False
    """Whether it reads ``Queries.past``, the weights of earlier steps."""

    average: Tensor | None
    """Moving average of the rewards, which the loss must update in place; None without one, (1,)."""

    def __init__(self, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> None:
        """Create a normaliser for decoder states of ``query_size``."""
        super().__init__()
        self.register_buffer("average", None)

    def first_weights(self, like: Tensor) -> Tensor:
        """Return the weights of the step before the first one, in the shape of ``like``, (B, Q, heads, S)."""
        return torch.zeros_like(like)

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Compute the attention weights.

        Args:
            scores: e, -inf at masked positions, at least one finite per query, (B, heads, Q, S).
            queries: the queries, whose states are (B, Q, H).
        """
        return NormaliserOutput(scores.softmax(-1))


class Sparsemax(Softmax):
    """a = max(e - tau, 0), the sum being 1: Martins and Astudillo 2016 (see Peters et al. 2019).

    All positions whose scores are far enough below the largest one get a weight of exactly 0.
    """

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Compute the attention weights; arguments as for ``Softmax``."""
        return NormaliserOutput(sparsemax(_at_least_float32(scores)))


class Entmax(Softmax):
    """a = max(e / 2 - tau, 0)^2, the sum being 1: 1.5-entmax, Peters et al. 2019.

    It is between softmax and sparsemax.
    """

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Compute the attention weights; arguments as for ``Softmax``."""
        return NormaliserOutput(entmax15(_at_least_float32(scores)))


class StraightThrough(Softmax):
    """a = one-hot(arg max e) with the gradient of softmax(e): Bengio et al. 2013, section 4."""

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Select the position of the highest score, in training too; arguments as for ``Softmax``."""
        soft = scores.softmax(-1)
        # soft - soft.detach() is exactly 0. Computed first, it leaves the one-hot exact; (one-hot + soft) -
        # soft.detach() would be rounded.
        weights = _one_hot(scores.argmax(-1, keepdim=True), soft) + (soft - soft.detach())
        return NormaliserOutput(weights)


class Reinforce(Softmax):
    """a = one-hot(i), i sampled from softmax(e) in training, arg max e at test: Xu et al. 2015, section 4.1.

    No gradient flows through the sample. The loss instead weights its log-probability by reward - value
    (REINFORCE, Williams 1992). The baseline value = w . s + b is learned from the decoder state s, but its
    gradient does not reach s; or it is a moving average (``ReinforceConfig``).
    """

    def __init__(self, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> None:
        super().__init__(query_size)
        self.settings, self.baseline = reinforce, None
        if reinforce.baseline == "learned":
            self.baseline = nn.Linear(query_size, 1)
        else:
            self.average = torch.zeros(1)

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Sample one position per head and query in training; arguments as for ``Softmax``."""
        if not self.training:
            return NormaliserOutput(_one_hot(scores.argmax(-1, keepdim=True), scores))
        # Under autocast scores may be bfloat16: too coarse for a log-probability, and samples would tie.
        logp = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        # With x[i] ~ Exp(1), which is never 0, arg max p[i] / x[i] is i with probability p[i].
        # torch.multinomial samples the same way, but synchronises with the device.
        sample = (logp.detach().exp() / torch.empty_like(logp).exponential_()).argmax(-1, keepdim=True)
        if self.baseline is not None:
            value = self.baseline(queries.state.detach()).squeeze(-1)
        else:
            assert self.average is not None
            value = self.average.clone().expand(queries.position.shape)  # the loss changes the average
        chosen = logp.gather(-1, sample).squeeze(-1).sum(1)
        if self.settings.reward_weight != 1:
            chosen = self.settings.reward_weight * chosen
        entropy = None
        if self.settings.entropy_weight:
            finite = logp.masked_fill(logp == float("-inf"), 0)
            entropy = -self.settings.entropy_weight * (logp.exp() * finite).sum((1, 3))
        return NormaliserOutput(_one_hot(sample, scores), Choices(chosen, value, entropy))


class Monotonic(Softmax):
    """a(t, j) = p(j) sum[i <= j] a(t-1, i) prod[i <= l < j] (1 - p(l)): Raffel et al. 2017, 2.3.

    This is the probability that a reader who stands at position i with probability a(t-1, i), goes on from
    word l with probability 1 - p(l) and never back, stops at word j, with p = sigmoid(e + r). The reader
    begins at the first word. The weights need not sum to 1: with the rest the reader passes the last word,
    and the context is the smaller, at all later steps too.

    In training, normal noise is added to e, so that p learns to be near 0 or 1 (section 2.5). In evaluation
    the reader stops at the first word with e + r > 0 (section 2.2): the same formula for p of 0 and 1. The
    sums run over all pairs i, j instead of the parallel form of the paper's appendix C, which divides by
    products near 0. The offset r starts at 0, so that the reader goes on by about one word per step.
    """

    needs_past = True

    def __init__(self, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> None:
        super().__init__(query_size)
        self.bias = nn.Parameter(torch.zeros(1))

    def first_weights(self, like: Tensor) -> Tensor:
        """Return 1 at the first word: the reader begins there."""
        first = torch.zeros_like(like)
        first[..., 0] = 1
        return first

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Compute expected weights in training, one position at test; arguments as for ``Softmax``."""
        assert queries.past is not None
        # Under autocast scores may be bfloat16: too coarse for a product over many words.
        scores = _at_least_float32(scores) + self.bias
        last = queries.past.last.transpose(1, 2)
        if not self.training:
            stops = (last.cummax(-1).values > 0) & (scores > 0)
            return NormaliserOutput((stops & (stops.cumsum(-1) == 1)).to(scores.dtype))
        scores = scores + torch.randn_like(scores)
        log_passed = pad(cumulative_sum(logsigmoid(-scores)), (1, -1))  # log of prod(1 - p) before each j
        ratio = log_passed.unsqueeze(-2) - log_passed.unsqueeze(-1)  # (B, heads, Q, S from i, S to j)
        backward = torch.ones_like(ratio[0, 0, 0], dtype=torch.bool).tril(-1)
        arriving = (last.unsqueeze(-1) * ratio.masked_fill(backward, float("-inf")).exp()).sum(-2)
        return NormaliserOutput(scores.sigmoid() * arriving)


def _at_least_float32(scores: Tensor) -> Tensor:
    """Return scores in float32, as autocast computes a softmax, or in float64."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    """Return 1 at ``index`` (B, heads, Q, 1) and 0 elsewhere, in the shape and dtype of ``like``."""
    return torch.zeros_like(like).scatter_(-1, index, 1.0)


NORMALISERS: dict[str, type[Softmax]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax-1.5": Entmax,
    "straight-through": StraightThrough,
    "reinforce": Reinforce,
    "monotonic": Monotonic,
}
"""Normaliser classes by ``AttentionConfig.normaliser``."""


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
    choices: Choices | None = None
    """The sampled positions; only with normaliser "reinforce" in training."""


class Attention(nn.Module):
    """c = sum over i of a_i h_i, a = normalise(score(s, h_i) for i in scope): Bahdanau et al. 2015, eq. 5.

    h_i are the encoder states and s is the decoder state that attends; some scores map h_i first. A
    temperature other than 1 divides the scores before they are normalised. During the first updates of
    training the scores are 0 if ``attention_warmup`` says so and ``begin_update`` is called.

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
        self.query_size, self.value_size = query_size, value_size
        self.num_heads, self.temperature = config.num_heads, config.temperature
        self.warmup, self.is_uniform = config.attention_warmup, False
        self.needs_past = self.scorer.needs_past or self.normaliser.needs_past
        """Whether a step reads the weights of the steps before it."""
        self.context_size = self.scorer.context_size
        """C, the size of a context vector."""

    def begin_update(self, update: int) -> None:
        """Prepare for an update of training, counted from 1: the first ones have uniform attention."""
        self.is_uniform = update <= self.warmup

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
        zeros = source.values.new_zeros(batch, queries, self.num_heads, length, dtype=dtype)
        return Past(self.normaliser.first_weights(zeros), zeros)

    def forward(self, queries: Queries, source: Source) -> AttentionOutput:
        """Attend from Q queries per sentence, which do not influence each other.

        Args:
            queries: decoder states (B, Q, H), their target positions (B, Q) and, if this attention
                ``needs_past``, the weights of their earlier steps.
            source: output of ``remember``.
        """
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
            scores = scores * 0.0  # and so is the gradient, but not None, as several processes sum it
        weights, choices = self.normaliser(scores.masked_fill(~visible, float("-inf")), queries)
        if factor is not None:
            weights = weights * factor
        return AttentionOutput(weighted_sum(weights, source.values), weights, choices)

    def join_gradients(self, source: Source, steps: int) -> Source:
        """Return ``source`` for a loop over ``steps`` in training, with one query per sentence and step.

        The products with its matrices then have one gradient product for all steps; see ``StepwiseProduct``.
        """
        keys: Any = source.keys
        if isinstance(self.scorer, ProductScore) and type(self.scorer).score is ProductScore.score:
            keys = StepwiseProduct(self.scorer.transpose_keys(keys), steps)
        values: Any = StepwiseProduct(split_heads(source.values, self.num_heads), steps)
        return Source(keys, values, source.mask)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum the values with the attention weights; each head sums its own slice of the C features.

    Args:
        weights: attention weights, (B, heads, Q, S).
        values: (B, S, C), C being a multiple of heads.

    Returns:
        Context vectors, the heads concatenated, (B, Q, C).
    """
    if isinstance(values, StepwiseProduct):  # of a loop in training; see ``Attention.join_gradients``
        return values(weights).transpose(1, 2).flatten(2)
    context = weights.to(values.dtype) @ split_heads(values, weights.size(1))
    return context.transpose(1, 2).flatten(2)
