"""What stands between the states of a decoder and its output layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .cells import StepwiseLinear


class Readout(nn.Linear):
    """f(W x + b): f is tanh, or the larger of each two neighbours (maxout: Goodfellow et al. 2013)."""

    def __init__(self, input_size: int, output_size: int, maxout: bool) -> None:
        super().__init__(input_size, output_size * (2 if maxout else 1))
        self.maxout = maxout

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., input size) to (..., output size)."""
        return self._activate(super().forward(x))

    def stepwise(self, steps: int, rows: int) -> Callable[[int, Tensor], Tensor]:
        """Give the same as a function of step t and x (rows, input size), each step called once, in order."""
        product = StepwiseLinear(self.weight, self.bias.expand(steps, rows, -1))
        biases = product.offsets.unbind()
        return lambda t, x: self._activate(product(biases[t], x))

    def _activate(self, x: Tensor) -> Tensor:
        return torch.maximum(x[..., ::2], x[..., 1::2]) if self.maxout else x.tanh()
