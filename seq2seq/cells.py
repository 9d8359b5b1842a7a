"""Recurrent layers: torch's own, and the same ones a step at a time for loops that feed something back.

Shapes: T steps, N rows, X known and F fed inputs, H hidden size, G gates (4 H of an LSTM, 3 H of a GRU).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from .config import Seq2SeqConfig


def build_rnn(config: Seq2SeqConfig, input_size: int, size: int, bidirectional: bool = False) -> nn.RNNBase:
    """Make the nn.LSTM or nn.GRU that ``config`` asks for; it reads (T, N, input_size)."""
    kind = nn.LSTM if config.cell == "lstm" else nn.GRU
    between = config.dropout if config.num_layers > 1 else 0.0
    return kind(input_size, size, config.num_layers, dropout=between, bidirectional=bidirectional)


def lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Advance an LSTM: gates (N, 4 H) in torch's order i, f, g, o and c (N, H) to the next h and c."""
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(inputs: Tensor, recurrent: Tensor, h: Tensor) -> Tensor:
    """Advance a GRU: gates of input and state (N, 3 H) in torch's order r, z, n, and h (N, H)."""
    r_x, z_x, n_x = inputs.chunk(3, dim=-1)
    r_h, z_h, n_h = recurrent.chunk(3, dim=-1)
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return n + (z_x + z_h).sigmoid() * (h - n)


class _Collect(torch.autograd.Function):
    """Hand the offsets of a ``Product`` through; backward gives its weight the gradient of all steps."""

    @staticmethod
    def forward(ctx: Any, offsets: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs
        return offsets.view_as(offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        inputs = torch.cat(ctx.inputs).to(grad.dtype)
        return grad, grad.flatten(0, 1).t() @ inputs, None


class Product:
    """offsets[t] + weight x[t] for the steps t of a loop, each taken once and in order.

    Autograd would add up the weight's gradient step by step, each time over a matrix of some MB. Since the
    gradient of an offset is that of its sum, one product over all steps gives that of the weight.
    """

    def __init__(self, weight: Tensor, offsets: Tensor) -> None:
        """Take weight (O, I) and offsets (T, N, O)."""
        self._inputs: list[Tensor] = []
        self.offsets: Tensor = _Collect.apply(offsets, weight, self._inputs)  # type: ignore[no-untyped-call]
        self._weight = weight.detach().to(offsets.dtype).t()

    def __call__(self, offset: Tensor, x: Tensor) -> Tensor:
        """Compute a step from its ``offset`` (N, O), one of ``offsets``, and x (N, I)."""
        self._inputs.append(x.detach())
        return torch.addmm(offset, x, self._weight)


class _Layer:
    """One layer of a ``Stepwise``; ``known`` (T, N, G) is the part of its gates that is known beforehand."""

    def __init__(self, lstm: bool, known: Tensor, fed: Tensor, weight: Tensor, bias: Tensor) -> None:
        self.lstm = lstm
        self.fed = Product(fed, known)
        # The gates of an LSTM are plain sums, so both products add to one; a GRU scales the second by r.
        self.recurrent = Product(weight, self.fed.offsets if lstm else bias.to(known.dtype).expand_as(known))
        self.bias = self.recurrent.offsets.unbind()
        self.known = self.bias if lstm else self.fed.offsets.unbind()

    def __call__(self, t: int, fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.fed(self.known[t], fed)
        if self.lstm:
            return lstm_step(self.recurrent(inputs, h), c)
        return gru_step(inputs, self.recurrent(self.bias[t], h), h), c


class Stepwise:
    """The layers of an nn.LSTM or nn.GRU a step at a time, for an input that is only known in part.

    The first X inputs are known beforehand, and their share of the gates is computed for all steps at once;
    the last F are fed step by step.
    """

    def __init__(self, rnn: nn.RNNBase, known: Tensor) -> None:
        """Prepare one run of ``rnn`` over known inputs (T, N, X)."""
        self.rnn, self.layers = rnn, []
        lstm, size = isinstance(rnn, nn.LSTM), known.size(-1)
        for layer, (weight_x, weight_h, bias_x, bias_h) in enumerate(rnn.all_weights):
            bias = bias_x + bias_h if lstm else bias_x
            if layer == 0:
                gates, fed = linear(known, weight_x[:, :size], bias), weight_x[:, size:]
            else:
                gates, fed = bias.to(gates.dtype).expand_as(gates), weight_x
            self.layers.append(_Layer(lstm, gates, fed, weight_h, bias_h))

    def __call__(self, t: int, fed: Tensor, h: list[Tensor], c: list[Tensor]) -> None:
        """Do step ``t`` with fed (N, F): replace h and c, (N, H) a layer; a GRU leaves c alone."""
        for i, layer in enumerate(self.layers):
            if i > 0:
                fed = dropout(h[i - 1], self.rnn.dropout, self.rnn.training)
            h[i], c[i] = layer(t, fed, h[i], c[i])


def initialise(module: nn.Module) -> None:
    """Give a module its first weights; for ``nn.Module.apply``.

    Matrices are Xavier-uniform, recurrent ones orthogonal, each gate for itself, as it is a layer of its own;
    embeddings are uniform within 0.1 (Luong et al. 2015, section 4.1); biases are 0, but the forget bias 1,
    so that an LSTM remembers from the start (Jozefowicz et al. 2015).
    """
    if isinstance(module, nn.Embedding):
        nn.init.uniform_(module.weight, -0.1, 0.1)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.RNNBase):
        for name, parameter in module.named_parameters():
            for gate, block in enumerate(parameter.detach().chunk(4 if isinstance(module, nn.LSTM) else 3)):
                _initialise_gate(name, block, forget=isinstance(module, nn.LSTM) and gate == 1)


def _initialise_gate(name: str, block: Tensor, forget: bool) -> None:
    if name.startswith("weight_ih"):
        nn.init.xavier_uniform_(block)
    elif name.startswith("weight_hh"):
        nn.init.orthogonal_(block)
    else:  # torch adds two biases, bias_ih and bias_hh; one of them is enough for the 1
        nn.init.constant_(block, 1.0 if forget and name.startswith("bias_ih") else 0.0)
