"""Single steps of recurrent cells, and a linear layer for loops over time steps.

Shapes: T time steps, N batch rows, H hidden size, I inputs and O outputs of a matrix.
"""

from typing import Any

import torch
from torch import Tensor


def lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM (Hochreiter and Schmidhuber 1997, forget gate of Gers et al. 2000).

    c' = sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c').

    Args:
        gates: sums of the gates before their activation, in torch's order i, f, g, o, (N, 4 H).
        c: previous cell state, (N, H).

    Returns:
        The next hidden state h' and the next cell state c', (N, H) each.
    """
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


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


def refuse_second_derivatives(*grads: Tensor) -> None:
    """Raise a RuntimeError in a backward pass with ``create_graph=True``; usable as a hook of a tensor.

    ``once_differentiable`` would not do: ``torch.autograd.grad`` skips the node that raises its error, and
    returns a second derivative in which its part is missing.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "a recurrent decoder that runs step by step has no second derivatives, so create_graph=True "
            "would give wrong ones: its weight gradients are computed once for all steps, outside the graph"
        )


class _WeightGradientOfAllSteps(torch.autograd.Function):
    """The identity on the offsets; its backward pass computes the weight's gradient of all steps at once."""

    @staticmethod
    def forward(ctx: Any, offsets: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs
        return offsets.view_as(offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        refuse_second_derivatives()
        inputs = torch.cat(ctx.inputs).to(grad.dtype)
        return grad, grad.flatten(0, 1).t() @ inputs, None


class StepwiseLinear:
    """y[t] = W x[t] + offset[t] for the time steps t of a loop, with one gradient product for all steps.

    Autograd would compute the gradient of W with one matrix product per step and add them up, reading and
    writing a matrix of some MB each time. The gradients of offset[t] and of y[t] are equal, so a single
    product of those of all steps with all inputs x gives the gradient of W.

    There are no second derivatives: call ``refuse_second_derivatives`` on the gradients of what depends on y.

    Call it exactly once for each step, in order: the backward pass pairs inputs with offsets by this order.
    """

    def __init__(self, weight: Tensor, offsets: Tensor) -> None:
        """Prepare one run over T steps.

        Args:
            weight: W, (O, I).
            offsets: one offset per step and row, (T, N, O).
        """
        self._inputs: list[Tensor] = []
        self.offsets: Tensor = _WeightGradientOfAllSteps.apply(  # type: ignore[no-untyped-call]
            offsets, weight, self._inputs
        )
        """The offsets to pass to ``__call__``, step by step, (T, N, O); gradients flow only through these."""
        self._weight = weight.detach().to(offsets.dtype).t()

    def __call__(self, offset: Tensor, x: Tensor) -> Tensor:
        """Compute the next step.

        Args:
            offset: entry t of the attribute ``offsets``, (N, O).
            x: input, (N, I).

        Returns:
            W x + offset, (N, O).
        """
        self._inputs.append(x.detach())
        return torch.addmm(offset, x, self._weight)
