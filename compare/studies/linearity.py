"""Linearity of two attention layers whose weights are held fixed.

With A1 and A2 fixed, A2 (A1 X V1) V2 = (A2 A1) X (V1 V2) because matrix products are associative: two layers
are one linear map of X, and a residual connection adds linear terms only. Weights computed from X, and the
feed-forward layer of Vaswani et al. 2017 (section 3.3), make the map nonlinear.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from compare.results.table import Row
from compare.studies.panels import conclude
from compare.studies.study import Settings, StudyResult
from transformer.attention import plain_attention

logger = logging.getLogger(__name__)

Layer = Callable[[Tensor], Tensor]
"""(N, d) to (N, d)."""


class AttentionStack:
    """Two attention layers with random matrices; A(X) = softmax(X Q (X K)^T / sqrt(d))."""

    def __init__(self, length: int, d: int) -> None:
        self.queries, self.keys, self.values = ([draw(d, d) / d**0.5 for _ in range(2)] for _ in range(3))
        self.widen, self.narrow = draw(d, 4 * d) / d**0.5, draw(4 * d, d) / (4 * d) ** 0.5
        example = draw(length, d)
        first = self.weights(0, example)
        self.fixed = [first, self.weights(1, first @ example @ self.values[0])]

    def weights(self, layer: int, x: Tensor) -> Tensor:
        """Compute the attention weights (N, N) of a layer with input x (N, d)."""
        queries, keys = ((x @ part[layer])[None, None] for part in (self.queries, self.keys))
        return plain_attention(queries, keys, x[None, None], None, False, 0.0)[1][0, 0]

    def attend(
        self, x: Tensor, *, computed: bool = False, residual: bool = False, feed_forward: bool = False
    ) -> Tensor:
        """Apply both layers with fixed weights, or with those computed from their input.

        A residual connection may go around each layer, and ReLU(X W1) W2 at each position stand in between.
        """
        for layer in range(2):
            weights = self.weights(layer, x) if computed else self.fixed[layer]
            output = weights @ x @ self.values[layer]
            x = x + output if residual else output
            if feed_forward and layer == 0:
                x = F.relu(x @ self.widen) @ self.narrow
        return x

    def collapsed(self, x: Tensor) -> Tensor:
        """Apply the one layer that replaces both: (A2 A1) X (V1 V2)."""
        output: Tensor = (self.fixed[1] @ self.fixed[0]) @ x @ (self.values[0] @ self.values[1])
        return output


def run(settings: Settings) -> StudyResult:
    """Measure the distance of each stack of two layers from one linear map."""
    length, d, trials = (6, 8, 3) if settings.quick else (64, 128, 20)
    options: dict[str, dict[str, Any]] = {
        "A fixed": {},
        "A fixed, residual": {"residual": True},
        "A computed from X": {"computed": True},
        "A fixed, feed-forward between": {"feed_forward": True},
    }
    logger.info(f"linearity: {trials} draws of {len(options)} stacks")
    draws = [(AttentionStack(length, d), draw(length, d), draw(length, d)) for _ in range(trials)]
    table: list[Row] = []
    for name, changes in options.items():
        superpositions = [superposition(partial(stack.attend, **changes), x, y) for stack, x, y in draws]
        from_one_layer = [
            relative_error(stack.attend(x, **changes), stack.collapsed(x)) for stack, x, _ in draws
        ]
        table.append(
            {
                "layers": name,
                "superposition_error_max": max(superpositions),
                "superposition_error_min": min(superpositions),
                "difference_from_one_layer_max": max(from_one_layer),
            }
        )
    fixed, residual, computed, broken = table
    return conclude(
        settings,
        {"linearity": table},
        {
            "one": fixed["difference_from_one_layer_max"],
            "linear": fixed["superposition_error_max"],
            "residual": residual["superposition_error_max"],
            "computed": computed["superposition_error_min"],
            "feed_forward": broken["superposition_error_min"],
        },
        **{"length": length, "d": d, "trials": trials},
    )


def superposition(layer: Layer, x: Tensor, y: Tensor) -> float:
    """Measure the nonlinearity of ``layer``: its error on 2 x - 3 y as a share of the largest value."""
    return relative_error(layer(2 * x - 3 * y), 2 * layer(x) - 3 * layer(y))


def relative_error(values: Tensor, expected: Tensor) -> float:
    """Compute the largest difference as a share of the largest expected value."""
    return float((values - expected).abs().max() / expected.abs().max())


def draw(*shape: int) -> Tensor:
    """Draw standard normal numbers in float64, where rounding errors are near 1e-16."""
    return torch.randn(*shape, dtype=torch.float64)
