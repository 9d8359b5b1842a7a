"""Gradients of outputs by inputs over their distance, in recurrent models and the Transformer.

Source and target are one sequence, as an encoder-decoder reads them: source position j is at time j, target
position i at time S + i, so they are S + i - j steps apart. Shapes: S source positions.

Gradients through a recurrence shrink with each step (Bengio et al. 1994); paths through attention have a
constant length (Vaswani et al. 2017, table 1, "maximum path length"). The rate for an LSTM follows from its
equations at initialisation; see the method and ``mean_squared_gain``.
"""

import logging
import math
from collections import defaultdict

import torch
from torch import Tensor, nn

from compare.analysis.tables import Table
from compare.studies.kit import Panel, draw_panels
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import TRANSLATORS, Model, one_way

logger = logging.getLogger(__name__)

NEAR = 4
"""Number of shortest distances, by whose mean a curve is divided."""
FORGET, THROUGH = 1 / (1 + math.exp(-1)), 0.25
"""Gain per step of a fresh LSTM's cell: sigmoid(1) by the forget gate, 1/2 * 1/2 through the other gates."""
Curve = dict[int, float]
"""Gradient norm by distance."""


def run(settings: Settings) -> StudyResult:
    """Measure the gradients of the three families."""
    d, length, draws = (16, 12, 2) if settings.quick else (64, 64, 8)
    outputs = list(range(0, length, 4))
    curves: dict[str, Curve] = {}
    for family in TRANSLATORS:
        logger.info(f"distance: {family}")
        models = [one_way(family, d)(length, length).double() for _ in range(draws)]
        curves[family] = by_distance(
            {i: [gradients(model, length, i) for model in models] for i in outputs}, length
        )
    predicted = by_distance({i: [predicted_norms(length, i)] for i in outputs}, length)
    rows = [
        {"distance": k, **{name: curve[k] for name, curve in curves.items()}, "LSTM_predicted": predicted[k]}
        for k in predicted
        if k & (k - 1) == 0 or k == max(predicted)
    ]
    return StudyResult(
        method=f"""
            Fresh encoder-decoders of width {d} in float64: one LSTM layer per side that reads from left to
            right, the same with additive attention, and a Transformer of two layers per side. A source of
            {length} different tokens, a target as long. With the target placed after the source, output i and
            input j are |i - j| = {length} + i - j steps apart. The gradient norm is that of the Jacobian of
            the i-th output state by the j-th source embedding, its root mean square over random directions,
            {len(outputs)} outputs and {draws} draws of weights; each curve is divided by its mean over the
            {NEAR} shortest distances. Prediction for the LSTM, whose gates are still near their biases: a
            step multiplies the cell by sigmoid(1) + W/4, as its forget bias is 1, its other gates are 1/2 and
            W, the recurrent weights of its input, is orthogonal. Over k steps the norm becomes the square
            root of the mean over all angles of |sigmoid(1) + e^(i angle)/4|^(2k), and the product of two such
            means for steps of the encoder and steps of the decoder. A path through attention has the same
            length for all distances, so there the gradient is predicted not to fall.""",
        tables={"gradients": Table("Gradient norm at some distances; the mean of the shortest is 1.", rows)},
        claims=judge(curves, predicted),
        figure=draw_panels(
            Panel(
                title="Gradient of output i by input j, fresh models",
                x="distance |i - j| (positions)",
                y="gradient norm, shortest distances = 1",
                lines={name: (list(curve), list(curve.values())) for name, curve in curves.items()},
                predicted={"LSTM, predicted": (list(predicted), list(predicted.values()))},
                log="y",
            )
        ),
    )


def by_distance(norms_by_output: dict[int, list[list[float]]], length: int) -> Curve:
    """Compute the root mean square of gradient norms at each distance.

    Args:
        norms_by_output: norms by output i, then draw, then input j.
        length: of the source.

    Returns:
        The curve, divided by its mean over the ``NEAR`` shortest distances.
    """
    squares: dict[int, list[float]] = defaultdict(list)
    for i, draws in norms_by_output.items():
        for norms in draws:
            for j, norm in enumerate(norms):
                squares[length + i - j].append(norm**2)
    norms_at = {k: math.sqrt(sum(squares[k]) / len(squares[k])) for k in sorted(squares)}
    unit = sum(list(norms_at.values())[:NEAR]) / NEAR
    return {k: norm / unit for k, norm in norms_at.items()}


def predicted_norms(length: int, i: int) -> list[float]:
    """Predict the gradient norm of output ``i`` by each source position of a fresh LSTM, up to a factor."""
    return [math.sqrt(mean_squared_gain(length - 1 - j) * mean_squared_gain(i + 1)) for j in range(length)]


def mean_squared_gain(steps: int, angles: int = 1024) -> float:
    """Compute the mean of |FORGET + THROUGH e^(i angle)|^(2 steps) over all angles.

    The eigenvalues of an orthogonal matrix lie on the unit circle; those of a random one are spread evenly.
    The result is exact below ``angles`` steps.
    """
    grid = (2 * math.pi * n / angles for n in range(angles))
    squares = (FORGET**2 + THROUGH**2 + 2 * FORGET * THROUGH * math.cos(angle) for angle in grid)
    return sum(square**steps for square in squares) / angles


def gradients(model: Model, length: int, i: int) -> list[float]:
    """Measure the gradient norm of output ``i``, in a random direction, by each source embedding.

    All source tokens differ, so that each row of the embedding's gradient belongs to one position.
    """
    src, tgt = torch.randperm(length).unsqueeze(0), torch.randint(length, (1, length))
    hidden = model.features(src, torch.ones_like(src, dtype=torch.bool), tgt).hidden[0, i]
    embedding = source_embedding(model)
    (grad,) = torch.autograd.grad(hidden, embedding, torch.randn_like(hidden))
    norms: list[float] = grad[src[0]].norm(dim=1).tolist()
    return norms


def source_embedding(model: Model) -> Tensor:
    """Find the embedding of the source tokens."""
    return next(part.weight for part in model.encoder.modules() if isinstance(part, nn.Embedding))


def judge(curves: dict[str, Curve], predicted: Curve) -> list[Claim]:
    """Compare the claims with the curves."""
    plain, *others = curves
    log_ratios = [math.log(curves[plain][k] / predicted[k]) for k in predicted]
    farthest = max(predicted)
    claims = [
        at_most(
            f"LSTM: the gradient fades as predicted, to {predicted[farthest]:.2g} at distance {farthest}: "
            "largest factor between the curves",
            math.exp(max(map(abs, log_ratios))),
            2,
        )
    ]
    for name in others:
        far = [norm for k, norm in curves[name].items() if k > farthest / 2]
        claims += [
            at_least(f"{name}: least gradient in the farther half of distances", min(far), 0.2),
            at_least(
                f"{name}: gradient at distance {farthest} over that of the LSTM",
                curves[name][farthest] / curves[plain][farthest],
                10,
            ),
        ]
    return claims
