"""The normalisers: from scores to weights; soft attention averages all positions, hard attention picks one.

Shapes: B sentences, Q queries each, S source positions, H decoder state s; i is a source position.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .score import MultiplyAdds


class NormaliserOutput(NamedTuple):
    """Weights, and what a loss has to know if they were drawn at random."""

    weights: Tensor
    """They sum to 1, (B, heads, Q, S)."""
    logp: Tensor | None = None
    """Log-probability of what was drawn, of all heads together, (B, Q)."""
    value: Tensor | None = None
    """Reward expected before the draw, (B, Q)."""


class Softmax(nn.Module):
    """softmax(e): soft attention, Bahdanau et al. 2015, eq. 6."""

    is_hard = False
    """Gives all the weight to one position."""

    def __init__(self, query_size: int) -> None:
        super().__init__()

    @classmethod
    def work(cls, query_size: int) -> MultiplyAdds:
        """Count what is learned here, as in training: nothing."""
        return MultiplyAdds()

    def forward(self, scores: Tensor, state: Tensor) -> NormaliserOutput:
        """Normalise scores (B, heads, Q, S), -inf at what is not seen, of states (B, Q, H)."""
        return NormaliserOutput(scores.softmax(-1))


class StraightThrough(Softmax):
    """one-hot(arg max e), with the gradient of softmax(e): Bengio et al. 2013, section 4."""

    is_hard = True

    def forward(self, scores: Tensor, state: Tensor) -> NormaliserOutput:
        """Choose the best by scores (B, heads, Q, S), in training too."""
        soft = scores.softmax(-1)
        # The difference is exactly 0, so the one-hot stays exact; added first, it would be rounded.
        return NormaliserOutput(_one_hot(scores.argmax(-1, keepdim=True), soft) + (soft - soft.detach()))


class Reinforce(Softmax):
    """one-hot(i), i drawn from softmax(e) in training, arg max e at test: hard attention, Xu et al. 2015.

    No gradient passes through the choice. A loss weighs the choice's log-probability by reward - value, the
    value being a baseline w . s + b, which is learned from the decoder state but does not train it.
    """

    is_hard = True

    def __init__(self, query_size: int) -> None:
        super().__init__(query_size)
        self.baseline = nn.Linear(query_size, 1)

    @classmethod
    def work(cls, query_size: int) -> MultiplyAdds:
        """Count w . s."""
        return MultiplyAdds(target=query_size)

    def forward(self, scores: Tensor, state: Tensor) -> NormaliserOutput:
        """Draw by scores (B, heads, Q, S); the baseline reads states (B, Q, H)."""
        if not self.training:
            return NormaliserOutput(_one_hot(scores.argmax(-1, keepdim=True), scores))
        # Under autocast scores may be bfloat16, too coarse for a log-probability and for a draw without ties.
        logp = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        # Of exponential variates, which are never 0, i's over p_i is the least with probability p_i. So draws
        # multinomial too, but it waits for the device.
        drawn = (logp.detach().exp() / torch.empty_like(logp).exponential_()).argmax(-1, keepdim=True)
        value = self.baseline(state.detach()).squeeze(-1)
        return NormaliserOutput(_one_hot(drawn, scores), logp.gather(-1, drawn).squeeze(-1).sum(1), value)


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    """Weight 1 at ``index`` (B, heads, Q, 1) and 0 elsewhere, in the shape and type of ``like``."""
    return torch.zeros_like(like).scatter_(-1, index, 1.0)


NORMALISERS: dict[str, type[Softmax]] = {
    "softmax": Softmax,
    "straight-through": StraightThrough,
    "reinforce": Reinforce,
}
"""From ``AttentionConfig.normaliser`` to a normaliser."""
