"""Products with one matrix in a loop over time steps, whose gradient is computed once for all steps.

Autograd would compute the gradient of the matrix by one product per step and add them up: each step writes,
reads and adds a matrix of some MB. Here a step adds an offset to its product. The gradients of the offset and
of the result are equal, so one product of the offsets' gradients with the inputs of all steps gives the same.

Second derivatives would be wrong: call ``refuse_second_derivatives`` on the gradients of what depends on the
results.

Shapes: T time steps, N batch rows, B sentences, I inputs and O outputs of a matrix.
"""

from typing import Any

import torch
from torch import Tensor

from .masks import is_traced


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


def joins_gradients() -> bool:
    """Return whether the gradients of all steps are computed at once: not without gradients, nor in a trace.

    ``torch.compile`` would trace the backward pass before the loop has run.
    """
    return torch.is_grad_enabled() and not is_traced()


def _cast_once(matrix: Tensor) -> Tensor:
    """Cast a matrix as autocast would at every step; autocast remembers only its casts of parameters."""
    kind = matrix.device.type
    if torch.is_autocast_enabled(kind) and matrix.dtype != torch.float64:  # which it leaves as it is
        return matrix.to(torch.get_autocast_dtype(kind))
    return matrix


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
    """y[t] = W x[t] + offset[t] for the time steps t of a loop, such as a layer of a recurrent decoder.

    Call it exactly once for each step, in order: the backward pass pairs inputs with offsets by this order.
    """

    def __init__(self, weight: Tensor, offsets: Tensor) -> None:
        """Prepare one run over T steps.

        Args:
            weight: W, (O, I).
            offsets: one offset per step and row, (T, N, O).
        """
        self._inputs: list[Tensor] | None = None
        self.offsets = offsets
        """The offsets to pass to ``__call__``, step by step, (T, N, O)."""
        self._weight = _cast_once(weight.to(offsets.dtype)).t()
        if joins_gradients():
            self._inputs, self._weight = [], self._weight.detach()
            # Gradients flow through the offsets only.
            self.offsets = _WeightGradientOfAllSteps.apply(offsets, weight, self._inputs)  # type: ignore[no-untyped-call]

    def __call__(self, offset: Tensor, x: Tensor) -> Tensor:
        """Compute the next step.

        Args:
            offset: entry t of the attribute ``offsets``, (N, O).
            x: input, (N, I).

        Returns:
            W x + offset, (N, O).
        """
        if self._inputs is not None:
            self._inputs.append(x.detach())
        return torch.addmm(offset, x, self._weight)


class _MatrixGradientOfAllSteps(torch.autograd.Function):
    """Offsets of 0 (T, N, 1, O); the backward pass computes the gradient of N matrices (N, I, O)."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, steps: int, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs
        return matrix.new_zeros(1).expand(steps, len(matrix), 1, matrix.size(2))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_derivatives()
        inputs = torch.cat(ctx.inputs, dim=1).to(grad.dtype)  # (N, T, I)
        return inputs.transpose(1, 2) @ grad.squeeze(2).transpose(0, 1), None, None


class StepwiseProduct:
    """y[t] = x[t] M for the time steps t of a loop, M being a matrix of each sentence, such as its keys.

    For a loop with gradients outside traces, see ``joins_gradients``. Call it exactly once for each step, in
    order.
    """

    def __init__(self, matrix: Tensor, steps: int) -> None:
        """Prepare one run over ``steps`` time steps with M, (B, I, O) or (B, heads, I, O)."""
        matrix = _cast_once(matrix).flatten(0, -3)
        self._inputs: list[Tensor] = []
        offsets: Tensor = _MatrixGradientOfAllSteps.apply(  # type: ignore[no-untyped-call]
            matrix, steps, self._inputs
        )
        self._offsets = iter(offsets.unbind())
        self._matrix = matrix.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the next step from x (B, 1, I) or (B, heads, 1, I): (B, 1, O) or (B, heads, 1, O)."""
        rows = x.flatten(0, -3).to(self._matrix.dtype)
        self._inputs.append(rows.detach())
        return torch.baddbmm(next(self._offsets), rows, self._matrix).view(*x.shape[:-1], -1)
