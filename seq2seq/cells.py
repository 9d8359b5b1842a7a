"""The arithmetic of recurrent cells: a step of each, products over the steps of a loop, and first weights.

Shapes: T steps, N rows, H hidden size, O outputs and I inputs of a matrix.
"""

from typing import Any

import torch
from torch import Tensor, nn


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


class _WeightGradientOfAllSteps(torch.autograd.Function):
    """Hand the offsets of a ``StepwiseLinear`` through; backward gives its weight the gradient of all steps."""

    @staticmethod
    def forward(ctx: Any, offsets: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs
        return offsets.view_as(offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        inputs = torch.cat(ctx.inputs).to(grad.dtype)
        return grad, grad.flatten(0, 1).t() @ inputs, None


class StepwiseLinear:
    """offsets[t] + weight x[t] for the steps t of a loop, each taken once and in order.

    Autograd would add up the weight's gradient step by step, each time over a matrix of some MB. Since the
    gradient of an offset is that of its sum, one product over all steps gives that of the weight.
    """

    def __init__(self, weight: Tensor, offsets: Tensor) -> None:
        """Take weight (O, I) and offsets (T, N, O)."""
        self._inputs: list[Tensor] = []
        self.offsets: Tensor = _WeightGradientOfAllSteps.apply(offsets, weight, self._inputs)  # type: ignore[no-untyped-call]
        self._weight = weight.detach().to(offsets.dtype).t()

    def __call__(self, offset: Tensor, x: Tensor) -> Tensor:
        """Compute a step from its ``offset`` (N, O), one of ``offsets``, and x (N, I)."""
        self._inputs.append(x.detach())
        return torch.addmm(offset, x, self._weight)


def initialise_weights(module: nn.Module) -> None:
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
