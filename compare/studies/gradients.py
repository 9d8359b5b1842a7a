"""Gradients of fresh models: by distance between input and output, and by layer with pre-norm and post-norm.

**Distance.** Source and target are one sequence, as an encoder-decoder reads them: source position j is at
time j, target position i at time S + i, so they are S + i - j steps apart. Gradients through a recurrence
shrink with each step (Bengio et al. 1994); paths through attention have a constant length (Vaswani et al.
2017, table 1, "maximum path length"). The rates for a plain RNN and an LSTM follow from their equations at
initialisation; see the method, ``rnn_norms`` and ``lstm_norms``.

**Layers.** Xiong et al. 2020, section 3.

Shapes: S source positions.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compare.models.styles import PLAIN
from compare.results.formatting import Row
from compare.studies.fresh_models import TRANSLATORS, Model, lstm, one_way, transformer
from compare.studies.panels import column, conclude, exponent
from compare.studies.study import Settings, StudyResult
from transformer.model import Transformer

logger = logging.getLogger(__name__)

# Distance.


NEAR = 4
"""Number of shortest distances, by whose mean a curve is divided."""
FORGET, THROUGH = 1 / (1 + math.exp(-1)), 0.25
"""Gain per step of a fresh LSTM's cell: sigmoid(1) by the forget gate, 1/2 * 1/2 through the other gates."""
EMBEDDING_VARIANCE = 0.1**2 / 3
"""Variance of fresh embeddings, uniform in [-0.1, 0.1]; Xavier's square matrices keep it."""
RNN = "RNN"
Curve = dict[int, float]


def distance(settings: Settings) -> StudyResult:
    """Measure the gradients of the plain RNN and the three families."""
    d, length, draws = (16, 12, 2) if settings.quick else (64, 64, 8)
    outputs = list(range(0, length, 4))
    curves: dict[str, Curve] = {}
    builds = {RNN: lstm(PLAIN, d, cell="rnn")}
    for family, build in (builds | {family: one_way(family, d) for family in TRANSLATORS}).items():
        logger.info(f"distance: {family}")
        models = [build(length, length).double() for _ in range(draws)]
        curves[family] = by_distance(
            {i: [gradients(model, length, i) for model in models] for i in outputs}, length
        )
    predicted = {
        family: by_distance({i: [norms(length, i)] for i in outputs}, length)
        for family, norms in {RNN: rnn_norms, PLAIN: lstm_norms}.items()
    }
    farthest = max(predicted[RNN])
    columns = curves | {f"{family}, predicted": curve for family, curve in predicted.items()}
    rows: list[Row] = [
        {"distance": k, **{name: columns[name][k] for name in columns}} for k in predicted[RNN]
    ]
    return conclude(
        settings,
        {
            "gradients": [row for row in rows if (k := row["distance"]) & (k - 1) == 0 or k == farthest],
            "all": rows,
        },
        distance_series(curves, predicted),
        **{"d": d, "length": length, "draws": draws, "outputs": len(outputs), "near": NEAR},
        **{"farthest": farthest},
    )


def by_distance(norms_by_output: dict[int, list[list[float]]], length: int) -> Curve:
    """Compute the root mean square of gradient norms at each distance over the mean of the ``NEAR`` shortest.

    The norms are by output i, then draw, then input j.
    """
    squares: dict[int, list[float]] = defaultdict(list)
    for i, draws in norms_by_output.items():
        for norms in draws:
            for j, norm in enumerate(norms):
                squares[length + i - j].append(norm**2)
    norms_at = {k: math.sqrt(sum(squares[k]) / len(squares[k])) for k in sorted(squares)}
    unit = sum(list(norms_at.values())[:NEAR]) / NEAR
    return {k: norm / unit for k, norm in norms_at.items()}


def rnn_norms(length: int, i: int) -> list[float]:
    """Predict the gradient norm of output ``i`` by each source position of a fresh RNN, up to a factor.

    U keeps the norm of what it multiplies, and tanh'(a) = 1 - h^2 shrinks it at each step, in the root mean
    square over units. These a are normal; their variance is that of the state before plus that of the input.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(32)
    weights, gains, variance = weights / weights.sum(), [], 0.0
    for _ in range(length + i + 1):
        states = np.tanh(points * math.sqrt(variance + EMBEDDING_VARIANCE))
        variance = float(weights @ states**2)
        gains.append(math.sqrt(weights @ (1 - states**2) ** 2))
    return [math.prod(gains[j:]) for j in range(length)]


def lstm_norms(length: int, i: int) -> list[float]:
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


def distance_series(
    curves: Mapping[str, Curve], predicted: Mapping[str, Curve]
) -> dict[str, dict[str, float]]:
    """Compute what the claims are about; ``predicted`` are curves of the families without attention."""
    farthest, others = max(curves[PLAIN]), [name for name in curves if name not in predicted]
    return {
        "fades": {
            name: math.exp(max(abs(math.log(curves[name][k] / norm)) for k, norm in curve.items()))
            for name, curve in predicted.items()
        },
        "falls": {name: curves[name][farthest] for name in predicted},
        "far": {name: min(norm for k, norm in curves[name].items() if k > farthest / 2) for name in others},
        "ahead": {name: curves[name][farthest] / curves[PLAIN][farthest] for name in others},
    }


# Layers.


Norm = Literal["pre", "post"]
NORMS: tuple[Norm, ...] = ("pre", "post")
Sides = dict[str, list[float]]
VOCABULARY, SENTENCES, LENGTH = 100, 8, 20


def norm(settings: Settings) -> StudyResult:
    """Measure the gradients of every layer for each depth."""
    depths, d, draws = ([1, 2, 4], 16, 2) if settings.quick else ([4, 8, 16, 32], 64, 10)
    norms_by_depth: dict[int, dict[Norm, Sides]] = {}
    for depth in depths:
        logger.info(f"norm: {depth} layers")
        norms_by_depth[depth] = {kind: measure(kind, depth, d, draws) for kind in NORMS}
    summary = [
        summarise(kind, depth, norms_by_depth[depth][kind]["decoder"]) for kind in NORMS for depth in depths
    ]
    deepest = {
        f"{kind}_{side}": norms
        for kind, sides in norms_by_depth[depths[-1]].items()
        for side, norms in sides.items()
    }
    layers: list[Row] = [
        {"layer": n + 1, **{name: norms[n] for name, norms in deepest.items()}} for n in range(depths[-1])
    ]
    first = summary[0]["last"]
    last: list[Row] = [
        {"depth": depth, "1/sqrt(L)": first * (depths[0] / depth) ** 0.5}
        | {kind: column(summary, "last", norm=kind, depth=depth)[0] for kind in NORMS}
        for depth in depths
    ]
    return conclude(
        settings,
        {"depths": summary, "layers": layers, "last": last},
        norm_series(summary),
        **{"d": d, "inner": 4 * d, "tokens": SENTENCES * LENGTH, "draws": draws, "deepest": depths[-1]},
    )


def measure(norm: Norm, depth: int, d: int, draws: int) -> Sides:
    """Measure the mean gradient norm of each layer over ``draws`` models, by side."""
    build = transformer(d, depth, norm=norm, tie="none")
    total = torch.zeros(2, depth)
    for _ in range(draws):
        model = build(VOCABULARY, VOCABULARY)
        layers = [*model.encoder.layers, *model.decoder.layers]
        matrices = [layer.get_parameter("feed_forward.narrow.weight") for layer in layers]
        grads = torch.autograd.grad(_random_loss(model), matrices)
        total += torch.stack([grad.norm() for grad in grads]).view(2, depth)
    encoder, decoder = (total / draws).tolist()
    return {"encoder": encoder, "decoder": decoder}


def _random_loss(model: Transformer) -> Tensor:
    src, tgt, out = torch.randint(VOCABULARY, (3, SENTENCES, LENGTH))
    logits = model(src, torch.ones_like(src, dtype=torch.bool), tgt)
    return F.cross_entropy(logits.flatten(0, 1), out.flatten())


def summarise(norm: Norm, depth: int, layers: list[float]) -> Row:
    """Summarise the gradient norms of one model."""
    return {
        "norm": norm,
        "depth": depth,
        "first": layers[0],
        "last": layers[-1],
        "last_over_first": layers[-1] / layers[0],
        "spread": max(layers) / min(layers),
    }


def norm_series(summary: list[Row]) -> dict[str, float]:
    """Compute what the claims are about."""
    pre, post = ([row for row in summary if row["norm"] == kind] for kind in NORMS)
    return {
        "post_flat": exponent(post, "depth", "last"),
        "pre_falls": exponent(pre, "depth", "last"),
        "post_grows": post[-1]["last_over_first"],
        "post_larger": post[-1]["last"] / pre[-1]["last"],
        "pre_alike": pre[-1]["spread"],
    }
