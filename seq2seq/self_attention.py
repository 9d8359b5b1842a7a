"""Self-attention of an RNN to its own earlier states.

Shapes: B sentences, Q states that attend, P earlier states, S source positions, D directions, H size of a
state of one direction.
"""

import torch
from torch import Tensor, nn


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
