"""The gates of LSTM layers by one product each, for the single steps of a search.

Shapes: N batch rows, X inputs of the step, F inputs fed back from the step before, H hidden size of a layer.
"""

import torch
from torch import Tensor, nn

from .cells import lstm_step
from .stack import RecurrentStack


def join_gates(stack: RecurrentStack) -> nn.ModuleList | None:
    """Join the weights of each layer of an LSTM to one, W [x; h] + b; None for other cells.

    They are copies, as large as the weights, which later changes of the stack's weights do not reach.
    """
    layers = []
    for cell in stack.cells:
        if not stack.is_lstm or not isinstance(cell, list):
            return None
        weight_x, weight_h, bias_x, bias_h = (parameter.detach() for parameter in cell)
        joined = nn.Linear(weight_x.size(1) + weight_h.size(1), len(weight_x), device="meta")
        joined.weight = nn.Parameter(torch.cat((weight_x, weight_h), dim=1), requires_grad=False)
        joined.bias = nn.Parameter(bias_x + bias_h, requires_grad=False)
        layers.append(joined)
    return nn.ModuleList(layers)


class JoinedStack:
    """One step of a ``StepwiseStack`` without gradients and dropout, by ``join_gates``."""

    def __init__(self, stack: RecurrentStack, gates: nn.ModuleList, inputs: Tensor) -> None:
        """Prepare a step with the inputs (1, N, X)."""
        self.stack, self.gates, self.inputs = stack, gates, inputs

    def __call__(self, t: int, feedback: Tensor, h: list[Tensor], c: list[Tensor]) -> list[Tensor]:
        """Compute the step ``t``, 0; arguments and result as for ``StepwiseStack``."""
        x, outputs, dtype = self.inputs[t], list[Tensor](), self.inputs.dtype
        for i, layer in enumerate(self.gates):
            parts = (x, feedback, h[i]) if i == 0 or self.stack.context_size else (x, h[i])
            gates = layer(torch.cat([part.to(dtype) for part in parts], dim=-1))
            # With bfloat16 weights c stays float32: a sum over all steps, which bfloat16 would round.
            next_h, c[i] = lstm_step(gates.to(c[i].dtype), c[i])
            h[i] = next_h.to(dtype)
            x = h[i] if i < self.stack.max_plain else x + h[i]
            outputs.append(x)
        return outputs
