"""Layer between the states of a decoder and its output layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .stepwise_products import StepwiseLinear


class Readout(nn.Linear):
    """f(W x + b), f being tanh (Luong et al. 2015, eq. 5) or maxout (Bahdanau et al. 2015, appendix A.2.2).

    Maxout returns the larger of each two neighbouring units (Goodfellow et al. 2013, section 2).
    """

    def __init__(self, input_size: int, output_size: int, maxout: bool) -> None:
        """Create a layer from ``input_size`` to ``output_size`` features; W is twice as high with maxout."""
        super().__init__(input_size, output_size * (2 if maxout else 1))
        self.maxout = maxout

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., input_size) to (..., output_size)."""
        return self._activate(super().forward(x))

    def stepwise(self, steps: int, rows: int) -> Callable[[int, Tensor], Tensor]:
        """Prepare a loop over time steps, with one gradient product for all of them.

        Args:
            steps: number of time steps T.
            rows: number of batch rows N.

        Returns:
            A function from t and x (N, input_size) to (N, output_size), to be called once per step, in order.
        """
        linear = StepwiseLinear(self.weight, self.bias.expand(steps, rows, -1))
        biases = linear.offsets.unbind()
        return lambda t, x: self._activate(linear(biases[t], x))

    def _activate(self, x: Tensor) -> Tensor:
        return torch.maximum(x[..., ::2], x[..., 1::2]) if self.maxout else x.tanh()
