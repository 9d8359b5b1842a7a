"""Attention of an RNN to its own earlier states.

Shapes: B sentences, Q states that look, P earlier ones, S source positions, H size of a state.
"""

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Joins the states of an RNN to what it finds in its own earlier ones.

    e(i, t) = h(i) . h(t) for i < t, a(t) = softmax(e(t)), c(t) = sum over i of a(i, t) h(i), 0 at the first;
    the joined state is tanh(W [h(t); c(t)]). The recurrence goes on with h: unlike in the LSTMN of Cheng et
    al. 2016, where c takes the place of h in it, all the states are known before any of them looks back.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.join = nn.Linear(2 * size, size, bias=False)

    def forward(self, states: Tensor, earlier: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Join states (..., Q, H) to those of earlier (..., P, H) that seen (..., Q, P) is True for.

        Returns the joined states (..., Q, H) and the weights (..., Q, P), 0 in a row that sees nothing.
        """
        scores = states @ earlier.transpose(-1, -2)
        # Not -inf: where nothing is seen the softmax would be NaN.
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~seen, 0)
        context = weights.to(earlier.dtype) @ earlier
        joined: Tensor = self.join(torch.cat((states, context), dim=-1))
        return joined.tanh(), weights


class EncoderSelfAttention(nn.Module):
    """A ``SelfAttention`` for each direction of an encoder, over what that direction has read before."""

    def __init__(self, size: int, directions: tuple[bool, ...]) -> None:
        """Take the size of a direction's state and, for each direction, whether it reads forward."""
        super().__init__()
        self.directions = directions
        self.parts = nn.ModuleList(SelfAttention(size) for _ in directions)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Join states (B, S, D * H), in source order, D directions side by side; mask (B, S) True for real.

        Returns the joined states, shaped alike and 0 in the padding as ``states`` are, and the weights
        (B, D, S, S).
        """
        real = mask.unsqueeze(1) & mask.unsqueeze(2)
        halves = states.chunk(len(self.parts), dim=-1)
        found = [
            part(half, half, real.tril(-1) if forward else real.triu(1))
            for part, half, forward in zip(self.parts, halves, self.directions, strict=True)
        ]
        joined, weights = zip(*found, strict=True)
        return torch.cat(joined, dim=-1), torch.stack(weights, dim=1)
