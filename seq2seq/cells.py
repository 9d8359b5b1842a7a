"""Recurrent cells, their steps, and the loop over the steps of a layer.

Shapes: T time steps, N batch rows, D directions (1 or 2), H hidden size of a layer in one direction, X inputs
known for all steps, F inputs fed back from the step before, G gates (LSTM: 4 H, GRU: 3 H, plain RNN: H).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm, linear, logsigmoid
from torch.nn.utils.rnn import PackedSequence

State = tuple[Tensor, ...]
"""h and, of an LSTM, c."""
Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""The next step of a layer: from its input (N, F), h and c (N, H) to the next h and c."""
Steps = TypeVar("Steps", Tensor, PackedSequence)


def lstm_step(
    gates: Tensor, h: Tensor, c: Tensor, normalise: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Compute h' = sigmoid(o) * tanh(c') and c' = sigmoid(f) * c + sigmoid(i) * tanh(g), (N, H) each.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000. The gates (N, 4 H) are in
    torch's order i, f, g, o, before their activation. c is float32 even with 16-bit weights, because it sums
    over all steps. Only the type of h is read. ``normalise`` is applied to c' inside the second tanh.
    """
    if h.dtype != c.dtype:
        gates = gates.to(c.dtype)
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return (o.sigmoid() * (c if normalise is None else normalise(c)).tanh()).to(h.dtype), c


def activate(gates: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Compute h' and c' from gates (N, G) of an LSTM, or of a plain RNN, h' = tanh(gates) (Elman 1990)."""
    return (gates.tanh(), c) if gates.size(-1) == h.size(-1) else lstm_step(gates, h, c)


def gru_step(inputs: Tensor, recurrent: Tensor, h: Tensor) -> Tensor:
    """Compute one step of a GRU (Cho et al. 2014, section 2.3), as ``torch.nn.GRU`` does: h', (N, H).

    r = sigmoid(r_x + r_h), z = sigmoid(z_x + z_h), n = tanh(n_x + r * n_h) and h' = (1 - z) * n + z * h, for
    the shares of the input (r_x, z_x, n_x) and of the state in the gates, (N, 3 H) each. The paper applies r
    to h before the matrix product; torch, like cuDNN, applies it after.
    """
    r_x, z_x, n_x = inputs.chunk(3, dim=-1)
    r_h, z_h, n_h = recurrent.chunk(3, dim=-1)
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return n + (z_x + z_h).sigmoid() * (h - n)


# Cells: the weights of one direction of a layer.


class TorchCell(NamedTuple):
    """Weights of one direction of an ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN``."""

    weight_ih: Tensor
    weight_hh: Tensor
    input_bias: Tensor
    """Bias of the gates, (G,); in a GRU that of the inputs' product alone."""
    recurrent_bias: Tensor | None
    """In a GRU the bias of the state's product, (G,); None in other cells, which add both products."""

    def advance(self, inputs: Tensor, recurrent: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the next h and c (N, H) from W_x x + b and W_h h (GRU: + b_h), (N, G) each."""
        if self.recurrent_bias is None:
            return activate(inputs + recurrent, h, c)
        return gru_step(inputs, recurrent, h), c


class LayerNormLSTMCell(nn.Module):
    """i, f, g, o = LN(W_x x) + LN(W_h h) + b, c' = f * c + i * g, h' = o * tanh(LN(c')): Ba et al. 2016.

    LN subtracts the mean, divides by the standard deviation and multiplies by a gain. It normalises each gate
    on its own (Chen et al. 2018), where eq. 20 of Ba et al. 2016 takes the four of them together.
    """

    input_bias = recurrent_bias = None

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(nn.init.xavier_uniform_(torch.empty(4 * size, input_size)))
        self.weight_hh = nn.Parameter(nn.init.xavier_uniform_(torch.empty(4 * size, size)))
        self.bias_ih = nn.Parameter(torch.zeros(4 * size))
        self.gain_ih = nn.Parameter(torch.ones(4, size))
        self.gain_hh = nn.Parameter(torch.ones(4, size))
        self.gain_c = nn.Parameter(torch.ones(size))
        self.bias_c = nn.Parameter(torch.zeros(size))

    def normalise_inputs(self, product: Tensor) -> Tensor:
        """Return LN(W_x x) + b for W_x x, (..., 4 H)."""
        return _normalise_gates(product, self.gain_ih) + self.bias_ih.to(product.dtype)

    def advance(self, inputs: Tensor, recurrent: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step as ``TorchCell`` does; ``inputs`` come from ``normalise_inputs``."""
        gates = (inputs + _normalise_gates(recurrent, self.gain_hh)).to(c.dtype)
        return lstm_step(gates, h, c, self._normalise_cell)

    def _normalise_cell(self, c: Tensor) -> Tensor:
        return layer_norm(c, c.shape[-1:], self.gain_c.to(c.dtype)) + self.bias_c.to(c.dtype)


class LayerNormLSTM(nn.Module):
    """One layer of ``LayerNormLSTMCell`` in one or both directions, for ``run_step_by_step``."""

    def __init__(self, input_size: int, size: int, bidirectional: bool = False) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(LayerNormLSTMCell(input_size, size) for _ in range(directions))


def _normalise_gates(product: Tensor, gain: Tensor) -> Tensor:
    gates = product.view(*product.shape[:-1], 4, -1)
    return (layer_norm(gates, gates.shape[-1:]) * gain.to(gates.dtype)).flatten(-2)


MIN_CELLS = {"min-gru": "zn", "min-lstm": "ifn"}


class MinCell(nn.Module):
    """h(t) = a(t) * h(t-1) + (1 - a(t)) * n(t), a and n being functions of x(t) alone: Feng et al. 2024.

    minGRU (section 3.1): a = 1 - sigmoid(W_z x + b_z). minLSTM (section 3.2): f and i are sigmoids of W_f x +
    b_f and W_i x + b_i, and a = f / (f + i). Both: n = W_h x + b_h, of any sign, while the scan of logarithms
    in appendix B needs n > 0.
    """

    def __init__(self, input_size: int, size: int, gates: str) -> None:
        super().__init__()
        self.gates = gates
        self.weight_ih = nn.Parameter(nn.init.xavier_uniform_(torch.empty(len(gates) * size, input_size)))
        self.bias_ih = nn.Parameter(torch.zeros(len(gates) * size))

    def split(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Compute a and b = (1 - a) * n, (..., H), from z, n (minGRU) or i, f, n (minLSTM), (..., G)."""
        *inner, candidate = gates.chunk(len(self.gates), dim=-1)
        # i / (f + i) = sigmoid(log i - log f), which is exact where both f and i round to 0.
        update = inner[0] if len(inner) == 1 else logsigmoid(inner[0]) - logsigmoid(inner[1])
        return (-update).sigmoid(), update.sigmoid() * candidate

    @property
    def input_bias(self) -> Tensor:
        """Bias of the gates."""
        return self.bias_ih

    def advance(self, inputs: Tensor, h: Tensor) -> Tensor:
        """Compute the next h from W x + b, (N, G), and h (N, H); half precision rounds it at every step."""
        decay, added = self.split(inputs.to(h.dtype))
        return decay * h + added


Cell = TorchCell | LayerNormLSTMCell | MinCell


# minGRU and minLSTM: their gates do not read the state, so that one scan runs all steps of a layer.


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

        Returns the outputs (T, N, D * H), arbitrary in the padding, and the states after the last real
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


# Layers of cells.


def cells_of(layers: nn.Module) -> Sequence[Cell]:
    """Return the cells of an RNN of torch, a ``LayerNormLSTM`` or ``MinRNN``, by layer and direction."""
    if not isinstance(layers, nn.RNNBase):
        return list(layers.cells)  # type: ignore[arg-type]
    if isinstance(layers, nn.GRU):
        return [TorchCell(*weights) for weights in layers.all_weights]
    return [TorchCell(w_x, w_h, b_x + b_h, None) for w_x, w_h, b_x, b_h in layers.all_weights]


def draw_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask in the shape of ``like``: 0 with this probability, else 1 / (1 - probability)."""
    return dropout(torch.ones_like(like), probability, training=True)


def run_torch_layer(rnn: nn.RNNBase, x: Steps, state: State | None) -> tuple[Steps, State]:
    """Run one layer of torch by torch; there a state h alone is a bare tensor, here a tuple of one."""
    output, final = rnn(x, state if state is None or isinstance(rnn, nn.LSTM) else state[0])
    return output, final if isinstance(final, tuple) else (final,)


def run_step_by_step(
    rnn: nn.Module, x: Steps, state: State | None, recurrent_dropout: float
) -> tuple[Steps, State]:
    """Run one layer in all its directions by a loop, for layer norm in the cell and dropout of the state.

    Args:
        rnn: one layer of torch, or ``LayerNormLSTM``.
        x: inputs, packed or (T, N, X).
        state: initial h and (LSTM) c, (D, N, H) each; None: 0. Only for inputs that are not packed.
        recurrent_dropout: probability to drop a unit of h in the product, at all steps alike (Gal and
            Ghahramani 2016); 0 outside training.

    Returns:
        The outputs, packed as ``x`` is or (T, N, D * H), and the final states, shaped as ``state``.
    """
    packed = x if isinstance(x, PackedSequence) else None
    entries = x.data if isinstance(x, PackedSequence) else x.flatten(0, 1)
    assert packed is None or state is None
    sizes = [x.size(1)] * x.size(0) if isinstance(x, Tensor) else x.batch_sizes.tolist()
    outputs, finals = [], []
    for direction, cell in enumerate(cells_of(rnn)):
        assert not isinstance(cell, MinCell)
        product = linear(entries, cell.weight_ih, cell.input_bias)
        if isinstance(cell, LayerNormLSTMCell):
            product = cell.normalise_inputs(product)
        inputs = torch.split(product, sizes)
        h = product.new_zeros(sizes[0], cell.weight_hh.size(1))
        if state is not None:
            h = state[0][direction].to(h.dtype)
        c = h if state is None or len(state) == 1 else state[1][direction]
        c = c.to(torch.promote_types(c.dtype, torch.float32))
        mask = draw_mask(h, recurrent_dropout) if recurrent_dropout else None
        steps: list[Tensor] = [h] * len(sizes)
        for t in range(len(sizes)) if direction == 0 else reversed(range(len(sizes))):
            n = sizes[t]
            before = h[:n] if mask is None else h[:n] * mask[:n]
            recurrent = linear(before, cell.weight_hh, cell.recurrent_bias)
            steps[t], next_c = cell.advance(inputs[t], recurrent, h[:n], c[:n])
            # Sentences that have ended, or, from the right, have not begun, keep their state.
            h = steps[t] if n == len(h) else torch.cat((steps[t], h[n:]))
            c = next_c if n == len(c) else torch.cat((next_c, c[n:]))
        outputs.append(torch.cat(steps))
        finals.append((h,) if isinstance(rnn, nn.GRU | nn.RNN) else (h, c.to(h.dtype)))
    final = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    joined = torch.cat(outputs, dim=-1)
    if packed is None:
        return joined.view(len(sizes), sizes[0], -1), final
    if packed.unsorted_indices is not None:
        final = tuple(part.index_select(1, packed.unsorted_indices) for part in final)
    return packed._replace(data=joined), final
