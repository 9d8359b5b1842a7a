"""minGRU and minLSTM, whose gates do not read the state, and the scan that runs all their steps at once.

Shapes: T time steps, N batch rows, X inputs, H hidden size of one direction, G gates, D directions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

# The recurrence h(t) = a(t) * h(t-1) + b(t), all time steps at once.
#
# Two neighbouring steps are one step of the same form: a = a2 * a1 and b = a2 * b1 + b2. This combination is
# associative, so ceil(log2(T)) rounds, each over all steps in parallel, compute all h (Hillis and Steele
# 1986; Blelloch 1990). With a between 0 and 1 no product can overflow, and one that becomes 0 in floating
# point was to add next to nothing. Sums of logarithms (Feng et al. 2024, appendix B) would need b > 0, and
# subtract large numbers from each other where a sentence is long, which costs digits.
#
# Shapes: T time steps, N batch rows, H features.


def linear_scan(decay: Tensor, added: Tensor) -> Tensor:
    """Compute h(t) = a(t) * h(t-1) + b(t) from h(0) = b(0), with all derivatives.

    The result for a step is rounded the same, whatever follows it.

    Args:
        decay: a, between 0 and 1, (T, N, H); the first is not read.
        added: b, (T, N, H).

    Returns:
        h, (T, N, H).
    """
    result: Tensor = _LinearScan.apply(decay, added)  # type: ignore[no-untyped-call]
    return result


def _combine(decay: Tensor, added: Tensor) -> Tensor:
    """Combine each step with the one before it, then each pair with the pair before it, and so on."""
    steps, distance = added.size(0), 1
    while distance < steps:
        later = decay[distance:]
        added = torch.cat((added[:distance], torch.addcmul(added[distance:], later, added[:-distance])))
        if 2 * distance < steps:
            decay = torch.cat((decay[:distance], later * decay[:-distance]))
        distance *= 2
    return added


class _LinearScan(torch.autograd.Function):
    """The backward pass is a scan from the right, so that nothing of the rounds has to be kept."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, added: Tensor) -> Tensor:
        h = _combine(decay, added)
        ctx.save_for_backward(decay, h)
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        decay, h = ctx.saved_tensors
        # d(t) = grad(t) + a(t+1) d(t+1); the first factor of the reversed sequence is not read.
        factors = torch.cat((decay[:1], decay[1:].flip(0)))
        d = linear_scan(factors, grad.flip(0)).flip(0)
        return torch.cat((torch.zeros_like(d[:1]), d[1:] * h[:-1])), d


# Padded sentences: their steps are a rectangle, as a scan needs it. Each direction reads from the first real
# token on, and padding comes last.


class PaddedSteps(NamedTuple):
    """Inputs or outputs of recurrent layers, padding included: what ``PackedSequence`` is without it."""

    data: Tensor
    """One vector per step, (T, N, X)."""
    lengths: Tensor
    """Number of real steps of each sentence, at least 1, (N,)."""


class Padding(NamedTuple):
    """Takes the place of ``fast.Packing``, with the same methods; N sentences of T positions."""

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


# The cells.


MIN_CELLS = {"min-gru": "zn", "min-lstm": "ifn"}
"""The gates, candidate included, by the name of the cell."""


class MinCell(nn.Module):
    """h(t) = a(t) * h(t-1) + (1 - a(t)) * n(t), a and n being functions of x(t) alone: Feng et al. 2024.

    minGRU (section 3.1): a = 1 - sigmoid(W_z x + b_z). minLSTM (section 3.2): f and i are sigmoids of W_f x +
    b_f and W_i x + b_i, and a = f / (f + i). Both: n = W_h x + b_h, of any sign, as in these sections; the
    form for a scan of logarithms (appendix B) needs n > 0, which ``linear_scan`` does not.
    """

    def __init__(self, input_size: int, size: int, gates: str) -> None:
        """Create weights for inputs (..., input_size) and states (..., size); ``gates`` are their names."""
        super().__init__()
        self.gates = gates
        self.weight_ih = nn.Parameter(nn.init.xavier_uniform_(torch.empty(len(gates) * size, input_size)))
        self.bias_ih = nn.Parameter(torch.zeros(len(gates) * size))

    def split(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what a step does to the state, h' = a * h + b.

        Args:
            gates: W x + b; minGRU: z, n; minLSTM: i, f, n, (..., G).

        Returns:
            a, between 0 and 1, and b = (1 - a) * n, (..., H) each.
        """
        *inner, candidate = gates.chunk(len(self.gates), dim=-1)
        # i / (f + i) = sigmoid(log i - log f), which is exact where both f and i round to 0.
        update = inner[0] if len(inner) == 1 else logsigmoid(inner[0]) - logsigmoid(inner[1])
        return (-update).sigmoid(), update.sigmoid() * candidate

    @property
    def input_bias(self) -> Tensor:
        """Bias of the gates, (G,)."""
        return self.bias_ih

    def advance(self, inputs: Tensor, h: Tensor) -> Tensor:
        """Compute the next h from W x + b, (N, G), and h (N, H).

        A half-precision h is rounded at every step, which ``MinRNN.forward`` avoids.
        """
        decay, added = self.split(inputs.to(h.dtype))
        return decay * h + added


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
