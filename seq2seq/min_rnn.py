"""Layers of minGRU and minLSTM, whose gates do not read the state: one scan runs all their steps.

Shapes: T time steps, N batch rows, X inputs, H hidden size of one direction, D directions.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from .cells import MinCell


def linear_scan(decay: Tensor, added: Tensor) -> Tensor:
    """Compute h(t) = a(t) * h(t-1) + b(t) from h(0) = b(0), with all derivatives.

    Args:
        decay: a, between 0 and 1, (T, N, H); the first is not read.
        added: b, (T, N, H).

    Returns:
        h, (T, N, H).
    """
    h = [added[0]]
    for a, b in zip(decay[1:], added[1:], strict=True):
        h.append(a * h[-1] + b)
    return torch.stack(h)


# Padded sentences: their steps are a rectangle, as a scan needs it. Each direction reads from the first real
# token on, and padding comes last.


class PaddedSteps(NamedTuple):
    """Inputs or outputs of recurrent layers, padding included: what ``PackedSequence`` is without it."""

    data: Tensor
    """One vector per step, (T, N, X)."""
    lengths: Tensor
    """Number of real steps of each sentence, at least 1, (N,)."""


class Padding(NamedTuple):
    """Takes the place of ``stack.Packing``, with the same methods; N sentences of T positions."""

    lengths: Tensor
    """Number of real tokens of each sentence, at least 1, (N,)."""

    def pack(self, x: Tensor) -> PaddedSteps:
        """Put time first in x (N, T, X)."""
        return PaddedSteps(x.transpose(0, 1), self.lengths)

    def unpack(self, steps: PaddedSteps, size: int) -> Tensor:
        """Put sentences first: (N, T, X), 0 in the padding; ``size`` is T."""
        real = torch.arange(size, device=steps.data.device) < self.lengths.unsqueeze(1)
        return steps.data.transpose(0, 1).where(real.unsqueeze(2), 0)


def reversal_index(lengths: Tensor, size: int) -> Tensor:
    """Return an index for ``gather`` that reverses each sentence and leaves its padding where it is.

    Args:
        lengths: number of real tokens of each sentence, (N,).
        size: number of positions T, padding included.

    Returns:
        Positions, long, (N, T).
    """
    position = torch.arange(size, device=lengths.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    return mirrored.where(mirrored >= 0, position)


class MinRNN(nn.Module):
    """One layer of ``MinCell`` in one or both directions, all time steps in one call."""

    def __init__(self, input_size: int, size: int, gates: str, bidirectional: bool = False) -> None:
        """Create one cell per direction; ``size`` is H, that of one direction."""
        super().__init__()
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(MinCell(input_size, size, gates) for _ in range(directions))

    def forward(
        self, x: Tensor | PaddedSteps, state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor | PaddedSteps, tuple[Tensor, ...]]:
        """Run all directions over all time steps.

        The state is of the gates' type, but at least float32: bfloat16 would round a sum over all steps.

        Args:
            x: inputs (T, N, X), with all steps real or with padding.
            state: initial h, (D, N, H); None: 0.

        Returns:
            The outputs (T, N, D * H), in the form of ``x`` and of any value in the padding, and the states
            after the last real step, (D, N, H).
        """
        entries, lengths = (x, None) if isinstance(x, Tensor) else x
        mirror = last = None
        if lengths is not None:
            mirror = reversal_index(lengths, entries.size(0)).t().unsqueeze(2)  # (T, N, 1)
            last = (lengths - 1).view(1, -1, 1)
        outputs, finals = [], []
        for direction, cell in enumerate(self.cells):
            assert isinstance(cell, MinCell)
            gates = linear(entries, cell.weight_ih, cell.bias_ih)
            gates = gates if direction == 0 else _reverse(gates, mirror)
            decay, added = cell.split(gates.to(torch.promote_types(gates.dtype, torch.float32)))
            if state is not None:
                first = added[:1] + decay[:1] * state[0][direction].to(added.dtype)
                added = torch.cat((first, added[1:]))
            h = linear_scan(decay, added)
            finals.append(h[-1] if last is None else h.gather(0, last.expand(1, *h.shape[1:]))[0])
            h = h.to(gates.dtype)
            outputs.append(h if direction == 0 else _reverse(h, mirror))
        final = torch.stack(finals).to(outputs[0].dtype)
        joined = torch.cat(outputs, dim=2)
        return (joined if isinstance(x, Tensor) else x._replace(data=joined)), (final,)


def _reverse(x: Tensor, mirror: Tensor | None) -> Tensor:
    """Reverse each row of x (T, N, H), padding excluded."""
    return x.flip(0) if mirror is None else x.gather(0, mirror.expand_as(x))
