"""Exponential moving average of the weights of a model, over all updates."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from compare.training.serialization import model_weights


class MovingAverage:
    """Mean of the weights after each update, in which those of the next update weigh 1 / decay as much.

    After update t it is (1 - d) / (1 - d^t) times the sum of d^(t - i) w_i over i = 1 ... t (Kingma and Ba
    2015, Adam, section 7.2): without the division the first weights, zero, would count too.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Prepare the average, which has no value before the first update.

        Args:
            model: its weights are averaged; they stay the same tensors.
            decay: d, above 0 and below 1.
        """
        self.decay = decay
        self._current = model_weights(model)
        self.weights = {name: tensor.clone() for name, tensor in self._current.items()}

    def add(self, update: int) -> None:
        """Take in the weights after an update, counted from 1."""
        share = (1 - self.decay) / (1 - self.decay**update)
        floats = [name for name, tensor in self._current.items() if tensor.is_floating_point()]
        means, new = ([each[name] for name in floats] for each in (self.weights, self._current))
        torch._foreach_lerp_(means, new, share)
        for name in self._current.keys() - set(floats):  # counters, which have no mean
            self.weights[name].copy_(self._current[name])

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Restore ``weights`` as they were saved.

        Raises:
            LookupError: a tensor is missing.
            RuntimeError: a tensor has another shape.
        """
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])
