"""Normalisers of attention, from scores to weights: soft ones average positions, hard ones select one.

Shapes: B sentences, Q queries per sentence, S source positions, H size of a decoder state.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from .config import DEFAULT_REINFORCE, ReinforceConfig
from .scores import Queries

# Sparsemax and 1.5-entmax, sparse relatives of the softmax, computed exactly by sorting.
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
    """Return z with the largest at 0, z in descending order, and the lengths 1 to n of its prefixes."""
    z = (z - z.detach().amax(-1, keepdim=True)).clamp(min=-2)
    lengths = torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)
    return z, z.detach().sort(-1, descending=True).values, lengths


def _find_support(z: Tensor, ordered: Tensor, tau: Tensor) -> Tensor:
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


class Softmax(nn.Module):
    """a = softmax(e): soft attention, Bahdanau et al. 2015, eq. 6."""

    needs_past = False

    average: Tensor | None
    """Moving average of the rewards, which the loss must update in place; None without one, (1,)."""

    def __init__(self, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> None:
        super().__init__()
        self.register_buffer("average", None)

    def first_weights(self, like: Tensor) -> Tensor:
        """Return the weights of the step before the first one, in the shape of ``like``, (B, Q, heads, S)."""
        return torch.zeros_like(like)

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Compute the weights from scores (B, heads, Q, S), -inf at masked positions."""
        return NormaliserOutput(scores.softmax(-1))


class Sparsemax(Softmax):
    """a = max(e - tau, 0), the sum being 1: Martins and Astudillo 2016 (see Peters et al. 2019)."""

    def forward(self, scores: Tensor, queries: Queries) -> NormaliserOutput:
        """Compute the attention weights; arguments as for ``Softmax``."""
        return NormaliserOutput(sparsemax(_at_least_float32(scores)))


class Entmax(Softmax):
    """a = max(e / 2 - tau, 0)^2, the sum being 1: 1.5-entmax, Peters et al. 2019."""

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
            value = self.average.expand(queries.position.shape)
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

    This is the probability that a reader, who stands at position i with probability a(t-1, i) and goes on
    from word l with probability 1 - p(l), stops at word j; p = sigmoid(e + r). The reader begins at the first
    word. With the rest of the probability it passes the last word, and the context is the smaller, at all
    later steps too.

    In training, normal noise is added to e, so that p learns to be near 0 or 1 (section 2.5). In evaluation
    the reader stops at the first word with e + r > 0 (section 2.2). The sums run over all pairs i, j instead
    of the parallel form of the paper's appendix C, which divides by products near 0. The offset r starts at
    0, so that the reader goes on by about one word per step.
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
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter_(-1, index, 1.0)


NORMALISERS: dict[str, type[Softmax]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax-1.5": Entmax,
    "straight-through": StraightThrough,
    "reinforce": Reinforce,
    "monotonic": Monotonic,
}
