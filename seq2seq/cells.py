"""Single steps of recurrent cells.

Shapes: N batch rows, H hidden size.
"""

from collections.abc import Callable

from torch import Tensor


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
