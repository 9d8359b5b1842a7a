"""Linearity of two attention layers whose weights are held fixed.

With A1 and A2 fixed, A2 (A1 X V1) V2 = (A2 A1) X (V1 V2) because matrix products are associative: two layers
are one linear map of X, and a residual connection adds linear terms only. Weights computed from X, and the
feed-forward layer of Vaswani et al. 2017 (section 3.3), make the map nonlinear.
"""

import logging
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from compare.analysis.tables import Row, Table
from compare.studies.kit import Panel, column, draw, draw_panels, relative_error
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from transformer.attention import plain_attention

logger = logging.getLogger(__name__)

Layer = Callable[[Tensor], Tensor]
"""(N, d) to (N, d)."""
ROUNDING = 1e-12
"""Bound on float64 rounding: some hundred additions with errors near 1e-16."""


class AttentionStack:
    """Two attention layers with random matrices; A(X) = softmax(X Q (X K)^T / sqrt(d))."""

    def __init__(self, length: int, d: int) -> None:
        """Draw the matrices for inputs (length, d)."""
        self.queries, self.keys, self.values = ([draw(d, d) / d**0.5 for _ in range(2)] for _ in range(3))
        self.widen, self.narrow = draw(d, 4 * d) / d**0.5, draw(4 * d, d) / (4 * d) ** 0.5
        example = draw(length, d)
        first = self.weights(0, example)
        self.fixed = [first, self.weights(1, first @ example @ self.values[0])]

    def weights(self, layer: int, x: Tensor) -> Tensor:
        """Compute the attention weights (N, N) of a layer with input x (N, d)."""
        queries, keys = ((x @ part[layer])[None, None] for part in (self.queries, self.keys))
        return plain_attention(queries, keys, x[None, None], None, False, 0.0)[1][0, 0]

    def attend_fixed(self, x: Tensor) -> Tensor:
        """Apply both layers with fixed A1 and A2."""
        return self._layer(1, self.fixed[1], self._layer(0, self.fixed[0], x))

    def collapsed(self, x: Tensor) -> Tensor:
        """Apply the one layer that replaces both: (A2 A1) X (V1 V2)."""
        output: Tensor = (self.fixed[1] @ self.fixed[0]) @ x @ (self.values[0] @ self.values[1])
        return output

    def attend(self, x: Tensor) -> Tensor:
        """Apply both layers with weights computed from their input."""
        x = self._layer(0, self.weights(0, x), x)
        return self._layer(1, self.weights(1, x), x)

    def attend_with_residual(self, x: Tensor) -> Tensor:
        """Apply both layers with fixed weights and residual connections."""
        x = x + self._layer(0, self.fixed[0], x)
        return x + self._layer(1, self.fixed[1], x)

    def attend_with_feed_forward(self, x: Tensor) -> Tensor:
        """Apply both layers with fixed weights, and ReLU(X W1) W2 at each position in between."""
        x = F.relu(self._layer(0, self.fixed[0], x) @ self.widen) @ self.narrow
        return self._layer(1, self.fixed[1], x)

    def _layer(self, layer: int, weights: Tensor, x: Tensor) -> Tensor:
        """Compute A X V."""
        output: Tensor = weights @ x @ self.values[layer]
        return output


def run(settings: Settings) -> StudyResult:
    """Measure the distance of each stack of two layers from one linear map."""
    length, d, trials = (6, 8, 3) if settings.quick else (64, 128, 20)
    maps: dict[str, Callable[[AttentionStack], Layer]] = {
        "A fixed": lambda stack: stack.attend_fixed,
        "A fixed, residual": lambda stack: stack.attend_with_residual,
        "A computed from X": lambda stack: stack.attend,
        "A fixed, feed-forward between": lambda stack: stack.attend_with_feed_forward,
    }
    logger.info(f"linearity: {trials} draws of {len(maps)} stacks")
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in maps}
    for _ in range(trials):
        stack, x, y = AttentionStack(length, d), draw(length, d), draw(length, d)
        for name, choose in maps.items():
            layer = choose(stack)
            error = superposition(layer, x, y), relative_error(layer(x), stack.collapsed(x))
            errors[name].append(error)
    table: list[Row] = []
    for name, pairs in errors.items():
        superpositions, from_one_layer = zip(*pairs, strict=True)
        table.append(
            {
                "layers": name,
                "superposition_error_max": max(superpositions),
                "superposition_error_min": min(superpositions),
                "difference_from_one_layer_max": max(from_one_layer),
            }
        )
    places = range(len(maps))
    return StudyResult(
        method=f"""
            Two single-head layers O = A2 (A1 X V1) V2 over {length} positions of width {d}, all matrices
            normal, in float64. "Fixed" weights A1 and A2 are computed once, from one input, by the toolkit's
            own attention, and kept for every other; "computed" ones follow the input, as in a real model.
            Superposition is the largest difference between f(2 X - 3 Y) and 2 f(X) - 3 f(Y) as a share of the
            largest value, which is at rounding level if and only if f is linear. The feed-forward layer,
            ReLU(X W1) W2 without biases, is between the two.""",
        tables={"linearity": Table(f"Over {trials} draws of matrices and inputs.", table)},
        claims=judge(table),
        figure=draw_panels(
            Panel(
                title="Two layers of attention",
                x="weights of the layers",
                y="superposition error",
                lines={"largest error": (places, column(table, "superposition_error_max"))},
                predicted={"bound on rounding": (places, [ROUNDING] * len(maps))},
                log="y",
                ticks=list(maps),
            )
        ),
    )


def superposition(layer: Layer, x: Tensor, y: Tensor) -> float:
    """Measure the nonlinearity of ``layer``: its error on 2 x - 3 y as a share of the largest value."""
    return relative_error(layer(2 * x - 3 * y), 2 * layer(x) - 3 * layer(y))


def judge(table: list[Row]) -> list[Claim]:
    """Compare the claims with the table."""
    fixed, residual, computed, broken = table
    return [
        at_most(
            "With A1, A2 fixed, two layers are one, O = (A2 A1) X V1 V2: difference",
            fixed["difference_from_one_layer_max"],
            ROUNDING,
        ),
        at_most("With A1, A2 fixed, O is linear in X: error", fixed["superposition_error_max"], ROUNDING),
        at_most(
            "A residual connection keeps it linear: error", residual["superposition_error_max"], ROUNDING
        ),
        at_least(
            "With A1, A2 computed from X, O is not linear in X: least error",
            computed["superposition_error_min"],
            0.01,
        ),
        at_least(
            "A feed-forward layer between breaks the linearity: least error",
            broken["superposition_error_min"],
            0.01,
        ),
    ]
