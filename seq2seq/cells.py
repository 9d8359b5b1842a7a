"""Single steps of recurrent cells: LSTM, GRU, and the LSTM with layer normalisation."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

# Single steps of recurrent cells.
#
# Shapes: N batch rows, H hidden size.


def lstm_step(
    gates: Tensor, c: Tensor, normalise: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM (Hochreiter and Schmidhuber 1997, forget gate of Gers et al. 2000).

    c' = sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c').

    Args:
        gates: sums of the gates before their activation, in torch's order i, f, g, o, (N, 4 H).
        c: previous cell state, (N, H).
        normalise: applied to c' inside the second tanh; None: nothing is.

    Returns:
        The next hidden state h' and the next cell state c', (N, H) each.
    """
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * (c if normalise is None else normalise(c)).tanh(), c


def gru_step(inputs: Tensor, recurrent: Tensor, h: Tensor) -> Tensor:
    """Compute one step of a GRU (Cho et al. 2014, section 2.3) in the variant of ``torch.nn.GRU``.

    r = sigmoid(r_x + r_h), z = sigmoid(z_x + z_h), n = tanh(n_x + r * n_h) and h' = (1 - z) * n + z * h.
    The paper applies r to h before the matrix product; torch, like cuDNN, applies it after.

    Args:
        inputs: the input's share of the gates, r_x, z_x, n_x, (N, 3 H).
        recurrent: the state's share of the gates, r_h, z_h, n_h, (N, 3 H).
        h: previous hidden state, (N, H).

    Returns:
        The next hidden state h', (N, H).
    """
    r_x, z_x, n_x = inputs.chunk(3, dim=-1)
    r_h, z_h, n_h = recurrent.chunk(3, dim=-1)
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return n + (z_x + z_h).sigmoid() * (h - n)


# LSTM layers with layer normalisation.
#
# Shapes: T time steps, N batch rows, X inputs, H hidden size, D directions.


class LayerNormLSTMCell(nn.Module):
    """i, f, g, o = LN(W_x x) + LN(W_h h) + b, c' = f * c + i * g, h' = o * tanh(LN(c')): Ba et al. 2016.

    The activations are those of an LSTM (``lstm_step``). LN subtracts the mean, divides by the standard
    deviation and multiplies by a gain. It normalises each gate on its own (Chen et al. 2018), where eq. 20
    of Ba et al. 2016 takes the four of them together. LN(c') has a bias of its own.
    """

    def __init__(self, input_size: int, size: int) -> None:
        """Create weights for inputs (..., input_size) and states (..., size)."""
        super().__init__()
        self.size = size
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

    def advance(self, inputs: Tensor, recurrent: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step.

        Args:
            inputs: output of ``normalise_inputs``, (N, 4 H).
            recurrent: W_h h, (N, 4 H).
            c: previous cell state, (N, H).

        Returns:
            The next h and the next c, (N, H) each.
        """
        gates = (inputs + _normalise_gates(recurrent, self.gain_hh)).to(c.dtype)
        return lstm_step(gates, c, lambda cell: _normalise(cell, self.gain_c) + self.bias_c.to(cell.dtype))


class LayerNormLSTM(nn.Module):
    """One layer of ``LayerNormLSTMCell`` in one or both directions; ``run_step_by_step`` runs it."""

    def __init__(self, input_size: int, size: int, bidirectional: bool = False) -> None:
        """Create one cell per direction; ``size`` is H, that of one direction."""
        super().__init__()
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(LayerNormLSTMCell(input_size, size) for _ in range(directions))


def _normalise(x: Tensor, gain: Tensor) -> Tensor:
    """Normalise the last dimension of x, without a bias."""
    return layer_norm(x, x.shape[-1:], gain.to(x.dtype))


def _normalise_gates(product: Tensor, gain: Tensor) -> Tensor:
    """Normalise each gate of (..., 4 H) on its own; the gains are (4, H)."""
    gates = product.view(*product.shape[:-1], 4, -1)
    return (layer_norm(gates, gates.shape[-1:]) * gain.to(gates.dtype)).flatten(-2)
