"""Recurrent layers over padded sentences, for programs that are recorded and run again with other sentences.

A packed batch has a shape that follows from the lengths of its sentences, so ``torch.export``,
``torch.compile`` and CUDA graphs cannot record it. Here all shapes follow from those of the batch. Each
direction reads from the first real token on, and padding comes last; its outputs influence no other.

Shapes: B = N sentences, S = T positions, padding included, E features, L layers, D directions, H hidden size
of a layer in one direction.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from .cells import gru_step, lstm_step
from .half_precision import is_half
from .layer_by_layer import run_on_gpu
from .packing import Packing, plan_packing
from .tracing import is_recorded

SATURATION = 1e4
"""Input of a gate at which its sigmoid is exactly 1, and at minus which it is exactly 0."""


class PaddedSteps(NamedTuple):
    """Inputs or outputs of recurrent layers, padding included: what ``PackedSequence`` is without it."""

    data: Tensor
    """One vector per step, (T, N, X)."""
    lengths: Tensor
    """Number of real steps of each sentence, at least 1, (N,)."""


class Padding(NamedTuple):
    """Takes the place of ``packing.Packing``, with the same methods."""

    lengths: Tensor
    """Number of real tokens of each sentence, at least 1, (B,)."""

    def pack(self, x: Tensor) -> PaddedSteps:
        """Put time first in x (B, S, E)."""
        return PaddedSteps(x.transpose(0, 1), self.lengths)

    def unpack(self, steps: PaddedSteps, size: int) -> Tensor:
        """Put sentences first: (B, S, E), 0 in the padding; ``size`` is S."""
        real = torch.arange(size, device=steps.data.device) < self.lengths.unsqueeze(1)
        return steps.data.transpose(0, 1).where(real.unsqueeze(2), 0)


def plan_layout(lengths: Tensor, size: int, on_host: Tensor | None = None) -> Packing | Padding:
    """Choose how to run over sentences: packed, or padded where the kernels are recorded.

    Args:
        lengths: number of real tokens of each sentence, at least 1, (B,).
        size: number of positions S, padding included.
        on_host: ``lengths`` on the CPU; None copies them, which waits for a GPU.
    """
    if is_recorded(lengths.device):
        return Padding(lengths)
    return plan_packing(lengths.cpu() if on_host is None else on_host, size, lengths.device)


def reversal_index(lengths: Tensor, size: int) -> Tensor:
    """Return an index for ``gather`` that reverses each sentence and leaves its padding where it is.

    Args:
        lengths: number of real tokens of each sentence, (B,).
        size: number of positions S, padding included.

    Returns:
        Positions, long, (B, S).
    """
    position = torch.arange(size, device=lengths.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    return mirrored.where(mirrored >= 0, position)


def run_padded(rnn: nn.RNNBase, x: PaddedSteps) -> tuple[PaddedSteps, tuple[Tensor, ...]]:
    """Run ``nn.LSTM`` or ``nn.GRU`` layers from states of 0, each direction of each layer on its own.

    Args:
        rnn: the layers, with biases and time first.
        x: inputs, (T, N, X).

    Returns:
        The outputs, (T, N, D * H), of any value in the padding, and the states after the last real step: h
        and, of an LSTM, c, (L * D, N, H) each.
    """
    entries, lengths = x
    steps = entries.size(0)
    padding = torch.arange(steps, device=lengths.device).unsqueeze(1) >= lengths  # (T, N)
    mirror = reversal_index(lengths, steps).t().unsqueeze(2)  # (T, N, 1)
    last = (lengths - 1).view(1, -1, 1).expand(-1, -1, rnn.hidden_size)
    directions = 2 if rnn.bidirectional else 1
    finals: list[list[Tensor]] = []
    for layer in range(rnn.num_layers):
        if layer:
            entries = dropout(entries, rnn.dropout, rnn.training)
        outputs = []
        for direction in range(directions):
            ordered = entries if direction == 0 else entries.gather(0, mirror.expand_as(entries))
            weights: list[Tensor] = list(rnn.all_weights[layer * directions + direction])
            if rnn.mode == "LSTM":
                ordered, weights[0] = _hold_cells(ordered, weights[0], padding)
            output, *c = _run_one_way(rnn, ordered, weights)
            finals.append([output.gather(0, last), *c])
            outputs.append(output if direction == 0 else output.gather(0, mirror.expand_as(output)))
        entries = torch.cat(outputs, dim=2)
    return PaddedSteps(entries, lengths), tuple(torch.cat(parts) for parts in zip(*finals, strict=True))


def _hold_cells(x: Tensor, weight: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    """Add an input that is 1 in the padding and there holds c: input gate 0, forget gate 1, both exactly.

    Torch returns c of the last step only, which would be one of padding.

    Args:
        x: inputs, (T, N, X).
        weight: their weight, (4 H, X).
        padding: True in the padding, (T, N).

    Returns:
        Inputs (T, N, X + 1) and weight (4 H, X + 1).
    """
    column = weight.new_zeros(4, weight.size(0) // 4)
    column[0], column[1] = -SATURATION, SATURATION  # gates in torch's order: input, forget, cell, output
    x = torch.cat((x, padding.unsqueeze(2).to(x.dtype)), dim=2)
    return x, torch.cat((weight, column.view(-1, 1)), dim=1)


def _run_one_way(rnn: nn.RNNBase, x: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Run one direction of one layer over x (T, N, X); returns h of all steps and c (1, N, H) of the last."""
    if torch.compiler.is_exporting():
        return _scan(rnn, x, weights)
    if x.is_cuda:
        outputs, *final = run_on_gpu(rnn, x, weights)
    else:
        zeros = x.new_zeros(1, x.size(1), rnn.hidden_size)
        # Biases, number of layers, dropout, training, both directions, batch first:
        settings = (True, 1, 0.0, rnn.training, False, False)
        if rnn.mode == "LSTM":
            outputs, *final = torch.lstm(x, (zeros, zeros), weights, *settings)
        else:
            outputs, *final = torch.gru(x, zeros, weights, *settings)
    return outputs, *final[1:]


def _scan(rnn: nn.RNNBase, x: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Compute ``_run_one_way`` for any number of steps; torch.export would unroll torch's own layers."""
    from torch._higher_order_ops.scan import scan  # a prototype in torch 2.13, which has no other loop

    weight_x, weight_h, bias_x, bias_h = weights
    is_lstm = rnn.mode == "LSTM"
    offsets = linear(x, weight_x, bias_x + bias_h if is_lstm else bias_x)

    def step(state: tuple[Tensor, ...], offset: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        if not is_lstm:
            h = gru_step(offset, torch.addmm(bias_h, state[0], weight_h.t()), state[0])
            return (h,), h.clone()
        h, c = state
        gates = torch.addmm(offset, h, weight_h.t())
        h, c = lstm_step(gates.to(c.dtype) if is_half(gates) else gates, c)
        return (h.to(offset.dtype), c), h.to(offset.dtype, copy=True)

    h = offsets.new_zeros(x.size(1), rnn.hidden_size)
    c = h.to(torch.promote_types(h.dtype, torch.float32), copy=True)
    state, outputs = scan(step, (h, c) if is_lstm else (h,), offsets)
    return outputs, *(part.unsqueeze(0).to(outputs.dtype) for part in state[1:])
