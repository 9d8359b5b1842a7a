"""Normalisers, which turn scores e into attention weights a.

Soft attention averages all visible positions; hard attention selects one of them.

Shapes: B sentences, Q queries per sentence, S source positions i, H size of a decoder state s.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from .scores import MultiplyAdds, Queries

# Sparse relatives of the softmax, computed exactly by sorting.
#
# Both are the distribution p that maximises p . z + H(p), each for a Tsallis entropy H of its own; the
# softmax is that of Shannon's entropy. Entries far enough below the largest one get a probability of exactly
# 0.
#
# Shapes: n entries z in the last dimension; -inf marks entries that are left out.


def sparsemax(z: Tensor) -> Tensor:
    """Return max(z - tau, 0), tau being such that the sum is 1: Martins and Astudillo 2016, eq. 2 to 4."""
    p: Tensor = _Sparsemax.apply(z)  # type: ignore[no-untyped-call]
    return p


def entmax15(z: Tensor) -> Tensor:
    """Return max(z / 2 - tau, 0)^2, tau being such that the sum is 1: Peters et al. 2019, section 3."""
    p: Tensor = _Entmax15.apply(z)  # type: ignore[no-untyped-call]
    return p


def cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(-1) of finite x, (..., n); torch's own has no deterministic form on a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return _sum_prefixes(x)
    return x.cumsum(-1)


def _sum_prefixes(x: Tensor) -> Tensor:
    """Compute ``cumulative_sum`` as n sums of n entries."""
    prefixes = torch.ones(x.size(-1), x.size(-1), dtype=x.dtype, device=x.device).tril()
    return (x.unsqueeze(-2) * prefixes).sum(-1)


def _shift(z: Tensor) -> Tensor:
    """Shift the largest z to 0 and raise all below -2 to it; tau is at least -1, so these get 0 anyway."""
    return (z - z.amax(-1, keepdim=True)).clamp(min=-2)


def _sorted_prefixes(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return z in descending order and the lengths 1 to n of its prefixes."""
    return z.sort(-1, descending=True).values, torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = _shift(z)
        ordered, lengths = _sorted_prefixes(z)
        sums = cumulative_sum(ordered) - 1
        support = (lengths * ordered > sums).sum(-1, keepdim=True)
        p = (z - sums.gather(-1, support - 1) / support).clamp(min=0)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Subtract the mean over the support, there: Martins and Astudillo 2016, eq. 14."""
        (p,) = ctx.saved_tensors
        support = (p > 0).to(grad.dtype)
        mean = (grad * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        result: Tensor = support * (grad - mean)
        return result


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = _shift(z / 2)
        ordered, lengths = _sorted_prefixes(z)
        mean = cumulative_sum(ordered) / lengths
        variance = (cumulative_sum(ordered.square()) / lengths - mean.square()).clamp(min=0)
        tau = mean - (1 / lengths - variance).clamp(min=0).sqrt()
        support = (tau <= ordered).sum(-1, keepdim=True)
        p = (z - tau.gather(-1, support - 1)).clamp(min=0).square()
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Multiply by diag(r) - r r^T / sum r, r being the roots of p: Peters et al. 2019, section 3.2."""
        (p,) = ctx.saved_tensors
        root = p.where(p > 0, 1).sqrt() * (p > 0)  # so that a second derivative is 0 where p is 0, not NaN
        mean = (grad * root).sum(-1, keepdim=True) / root.sum(-1, keepdim=True)
        result: Tensor = root * (grad - mean)
        return result


Baseline = Literal["learned", "moving-average"]


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig:
    """How samples of hard attention are trained: Xu et al. 2015, section 4.1; only with "reinforce"."""

    baseline: Baseline = "learned"
    """Reward that is expected before a choice: learned from the decoder state, or the moving average of all
    rewards, 0.9 times the old one plus 0.1 times the mean of the batch, of each of its parts where gradients
    are accumulated; each process has one of its own."""
    reward_weight: float = 1.0
    """lambda_r, the weight of the policy gradient."""
    entropy_weight: float = 0.0
    """lambda_e, the weight of the entropy of the choices, which training then raises."""

    def __post_init__(self) -> None:
        """Reject unknown baselines and weights that are negative or not finite."""
        if self.baseline not in get_args(Baseline):
            names = ", ".join(get_args(Baseline))
            raise ValueError(f"baseline must be one of {names}, got {self.baseline!r}")
        for name in ("reward_weight", "entropy_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")


DEFAULT_REINFORCE = ReinforceConfig()


class NormaliserOutput(NamedTuple):
    """Attention weights; if they were sampled, also the log-probability and baseline for the loss."""

    weights: Tensor
    """Attention weights, which sum to 1 over S, with "monotonic" to at most 1, (B, heads, Q, S)."""
    logp: Tensor | None = None
    """Log-probability of the sampled positions, summed over the heads, times lambda_r, (B, Q)."""
    value: Tensor | None = None
    """Baseline of REINFORCE: the reward predicted before sampling, (B, Q)."""
    entropy: Tensor | None = None
    """Entropy of the choice, summed over the heads, times lambda_e, (B, Q); None if lambda_e is 0."""


class Softmax(nn.Module):
    """a = softmax(e): soft attention, Bahdanau et al. 2015, eq. 6."""

    is_hard = False
    """Whether one position is chosen, in evaluation at least."""
    needs_past = False
    """Whether it reads ``Queries.past``, the weights of earlier steps."""

    average: Tensor | None
    """Moving average of the rewards, which the loss must update in place; None without one, (1,)."""

    def __init__(self, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> None:
        """Create a normaliser for decoder states of ``query_size``."""
        super().__init__()
        self.register_buffer("average", None)

    @classmethod
    def multiply_adds(cls, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> MultiplyAdds:
        """Count the multiply-adds with parameters of the normaliser, in training."""
        return MultiplyAdds()

    def first_weights(self, like: Tensor) -> Tensor:
        """Return the weights of the step before the first one, in the shape of ``like``, (B, heads, Q, S)."""
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

    is_hard = True

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

    is_hard = True

    def __init__(self, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> None:
        super().__init__(query_size)
        self.settings, self.baseline = reinforce, None
        if reinforce.baseline == "learned":
            self.baseline = nn.Linear(query_size, 1)
        else:
            self.average = torch.zeros(1)

    @classmethod
    def multiply_adds(cls, query_size: int, reinforce: ReinforceConfig = DEFAULT_REINFORCE) -> MultiplyAdds:
        """Count w . s."""
        return MultiplyAdds(target=query_size if reinforce.baseline == "learned" else 0)

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
        return NormaliserOutput(_one_hot(sample, scores), chosen, value, entropy)


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

    is_hard = needs_past = True

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
        last = queries.past.last
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
