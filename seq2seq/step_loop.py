"""Recurrent layers in a loop over time steps, for what torch's own layers cannot do.

These are layer normalisation inside the cell, and dropout of the recurrent state.

Shapes: T time steps, N batch rows, R rows of all steps together, H hidden size of a layer in one direction,
D directions, G gates (LSTM: 4 H, GRU: 3 H).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence

from .cells import gru_step, lstm_step
from .dropouts import draw_mask
from .layer_by_layer import Steps
from .layer_norm_lstm import LayerNormLSTM, LayerNormLSTMCell

Layer = nn.RNNBase | LayerNormLSTM


class _Cell(NamedTuple):
    """One direction of a layer, as functions of all its weights."""

    project: Callable[[Tensor], Tensor]
    """The inputs' share of the gates, (R, G)."""
    advance: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """The next h and c from a share (N, G), the h of the recurrent product, h and c, (N, H) each."""


def run_step_by_step(
    rnn: Layer, x: Steps, state: tuple[Tensor, ...] | None, recurrent_dropout: float
) -> tuple[Steps, tuple[Tensor, ...]]:
    """Run one layer, in all its directions.

    Args:
        rnn: one layer of an LSTM or GRU.
        x: inputs, packed or (T, N, X).
        state: initial h and (LSTM) c, (D, N, H) each; None: 0. Only for inputs that are not packed.
        recurrent_dropout: probability to drop a unit of h in the recurrent product, at all steps alike (Gal
            and Ghahramani 2016); 0 outside training.

    Returns:
        The outputs, packed as ``x`` is or (T, N, D * H), and the final states, shaped as ``state``.
    """
    packed = x if isinstance(x, PackedSequence) else None
    entries = x.data if isinstance(x, PackedSequence) else x.flatten(0, 1)
    assert packed is None or state is None
    sizes = [x.size(1)] * x.size(0) if isinstance(x, Tensor) else x.batch_sizes.tolist()
    outputs, finals = [], []
    for direction, cell in enumerate(_cells(rnn)):
        shares = torch.split(cell.project(entries), sizes)
        size = _hidden_size(rnn)
        h = shares[0].new_zeros(sizes[0], size) if state is None else state[0][direction].to(shares[0].dtype)
        c = h if state is None or len(state) == 1 else state[1][direction]
        c = c.to(torch.promote_types(c.dtype, torch.float32))
        mask = draw_mask(h, recurrent_dropout) if recurrent_dropout else None
        steps: list[Tensor] = [h] * len(sizes)
        for t in range(len(sizes)) if direction == 0 else reversed(range(len(sizes))):
            n = sizes[t]
            recurrent = h[:n] if mask is None else h[:n] * mask[:n]
            next_h, next_c = cell.advance(shares[t], recurrent, h[:n], c[:n])
            steps[t] = next_h.to(h.dtype)
            # Sentences that have ended, or, from the right, have not begun, keep their state.
            h = steps[t] if n == len(h) else torch.cat((steps[t], h[n:]))
            c = next_c if n == len(c) else torch.cat((next_c, c[n:]))
        outputs.append(torch.cat(steps))
        finals.append((h, c.to(h.dtype)) if _is_lstm(rnn) else (h,))
    final = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    joined = torch.cat(outputs, dim=-1)
    if packed is None:
        return joined.view(len(sizes), sizes[0], -1), final
    if packed.unsorted_indices is not None:
        final = tuple(part.index_select(1, packed.unsorted_indices) for part in final)
    return packed._replace(data=joined), final


def _is_lstm(rnn: Layer) -> bool:
    return isinstance(rnn, LayerNormLSTM) or rnn.mode == "LSTM"


def _hidden_size(rnn: Layer) -> int:
    return rnn.cells[0].size if isinstance(rnn, LayerNormLSTM) else rnn.hidden_size  # type: ignore[return-value]


def _cells(rnn: Layer) -> Iterator[_Cell]:
    if isinstance(rnn, LayerNormLSTM):
        for cell in rnn.cells:
            assert isinstance(cell, LayerNormLSTMCell)
            yield _layer_norm_cell(cell)
    else:
        for weights in rnn.all_weights:
            yield _torch_cell(*weights, is_lstm=rnn.mode == "LSTM")


def _layer_norm_cell(cell: LayerNormLSTMCell) -> _Cell:
    return _Cell(
        project=lambda x: cell.normalise_inputs(linear(x, cell.weight_ih)),
        advance=lambda share, recurrent, h, c: cell.advance(share, linear(recurrent, cell.weight_hh), c),
    )


def _torch_cell(
    weight_x: Tensor, weight_h: Tensor, bias_x: Tensor, bias_h: Tensor, *, is_lstm: bool
) -> _Cell:
    if is_lstm:
        return _Cell(
            project=lambda x: linear(x, weight_x, bias_x + bias_h),
            advance=lambda share, recurrent, h, c: lstm_step(
                (share + linear(recurrent, weight_h)).to(c.dtype), c
            ),
        )
    return _Cell(
        project=lambda x: linear(x, weight_x, bias_x),
        advance=lambda share, recurrent, h, c: (gru_step(share, linear(recurrent, weight_h, bias_h), h), c),
    )
