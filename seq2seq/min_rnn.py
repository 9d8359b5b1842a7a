"""Layers of minGRU and minLSTM, whose gates do not read the state: one scan runs all their steps.

Shapes: T time steps, N batch rows, X inputs, H hidden size of one direction, D directions.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .cells import MinCell, State


def linear_scan(decay: Tensor, added: Tensor) -> Tensor:
    """Compute h(t) = a(t) * h(t-1) + b(t), (T, N, H), from h(0) = b(0), for a and b, (T, N, H) each."""
    h = [added[0]]
    for a, b in zip(decay[1:], added[1:], strict=True):
        h.append(a * h[-1] + b)
    return torch.stack(h)


def reversal_index(lengths: Tensor, size: int) -> Tensor:
    """Return positions (N, T), for ``gather``, that reverse sentences of ``lengths`` (N,), not padding."""
    position = torch.arange(size, device=lengths.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    return mirrored.where(mirrored >= 0, position)


class MinRNN(nn.Module):
    """One layer of ``MinCell`` in one or both directions, all time steps in one call."""

    def __init__(self, input_size: int, size: int, gates: str, bidirectional: bool = False) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(MinCell(input_size, size, gates) for _ in range(directions))

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run x (T, N, X) from the initial h (D, N, H), or 0, over all steps or ``lengths`` (N,) of them.

        Returns the outputs (T, N, D * H), of any value in the padding, and the states after the last real
        step, (D, N, H). The state is of the gates' type, but at least float32: bfloat16 would round a sum
        over all steps.
        """
        mirror = last = None
        if lengths is not None:
            mirror = reversal_index(lengths, x.size(0)).t().unsqueeze(2)  # (T, N, 1)
            last = (lengths - 1).view(1, -1, 1)
        outputs, finals = [], []
        for direction, cell in enumerate(self.cells):
            assert isinstance(cell, MinCell)
            gates = linear(x, cell.weight_ih, cell.bias_ih)
            gates = gates if direction == 0 else _reverse(gates, mirror)
            decay, added = cell.split(gates.to(torch.promote_types(gates.dtype, torch.float32)))
            if state is not None:
                first = added[:1] + decay[:1] * state[0][direction].to(added.dtype)
                added = torch.cat((first, added[1:]))
            h = linear_scan(decay, added)
            finals.append(h[-1] if last is None else h.gather(0, last.expand(1, *h.shape[1:]))[0])
            h = h.to(gates.dtype)
            outputs.append(h if direction == 0 else _reverse(h, mirror))
        return torch.cat(outputs, dim=2), (torch.stack(finals).to(outputs[0].dtype),)


def _reverse(x: Tensor, mirror: Tensor | None) -> Tensor:
    return x.flip(0) if mirror is None else x.gather(0, mirror.expand_as(x))
