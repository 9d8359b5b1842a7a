"""Normalisers, which turn scores e into attention weights a.

Soft attention averages all visible positions; hard attention selects one of them.

Shapes: B sentences, Q queries per sentence, S source positions i, H size of a decoder state s.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .score import MultiplyAdds


class NormaliserOutput(NamedTuple):
    """Attention weights; if they were sampled, also the log-probability and baseline for the loss."""

    weights: Tensor
    """Attention weights, which sum to 1 over S, (B, heads, Q, S)."""
    logp: Tensor | None = None
    """Log-probability of the sampled positions, summed over the heads, (B, Q)."""
    value: Tensor | None = None
    """Baseline of REINFORCE: the reward predicted before sampling, (B, Q)."""


class Softmax(nn.Module):
    """a = softmax(e): soft attention, Bahdanau et al. 2015, eq. 6."""

    is_hard = False
    """Whether all the weight goes to one position."""

    def __init__(self, query_size: int) -> None:
        """Create a normaliser for decoder states of ``query_size``."""
        super().__init__()

    @classmethod
    def multiply_adds(cls, query_size: int) -> MultiplyAdds:
        """Count the multiply-adds with parameters of the normaliser, in training."""
        return MultiplyAdds()

    def forward(self, scores: Tensor, state: Tensor) -> NormaliserOutput:
        """Compute the attention weights.

        Args:
            scores: e, -inf at masked positions, at least one finite per query, (B, heads, Q, S).
            state: decoder states s of the queries, (B, Q, H).
        """
        return NormaliserOutput(scores.softmax(-1))


class StraightThrough(Softmax):
    """a = one-hot(arg max e) with the gradient of softmax(e): Bengio et al. 2013, section 4."""

    is_hard = True

    def forward(self, scores: Tensor, state: Tensor) -> NormaliserOutput:
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
    gradient does not reach s.
    """

    is_hard = True

    def __init__(self, query_size: int) -> None:
        super().__init__(query_size)
        self.baseline = nn.Linear(query_size, 1)

    @classmethod
    def multiply_adds(cls, query_size: int) -> MultiplyAdds:
        """Count w . s."""
        return MultiplyAdds(target=query_size)

    def forward(self, scores: Tensor, state: Tensor) -> NormaliserOutput:
        """Sample one position per head and query in training; arguments as for ``Softmax``."""
        if not self.training:
            return NormaliserOutput(_one_hot(scores.argmax(-1, keepdim=True), scores))
        # Under autocast scores may be bfloat16: too coarse for a log-probability, and samples would tie.
        logp = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        # With x[i] ~ Exp(1), which is never 0, arg max p[i] / x[i] is i with probability p[i].
        # torch.multinomial samples the same way, but synchronises with the device.
        sample = (logp.detach().exp() / torch.empty_like(logp).exponential_()).argmax(-1, keepdim=True)
        value = self.baseline(state.detach()).squeeze(-1)
        return NormaliserOutput(_one_hot(sample, scores), logp.gather(-1, sample).squeeze(-1).sum(1), value)


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    """Return 1 at ``index`` (B, heads, Q, 1) and 0 elsewhere, in the shape and dtype of ``like``."""
    return torch.zeros_like(like).scatter_(-1, index, 1.0)


NORMALISERS: dict[str, type[Softmax]] = {
    "softmax": Softmax,
    "straight-through": StraightThrough,
    "reinforce": Reinforce,
}
"""Normaliser classes by ``AttentionConfig.normaliser``."""
