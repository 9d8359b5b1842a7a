"""Gradients of each layer at initialisation with pre-norm and post-norm (Xiong et al. 2020, section 3)."""

import logging
from typing import Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from compare.analysis.tables import Row, Table
from compare.benchmark.measurement import fit_power_law
from compare.report.plots import make_panels
from compare.studies.figures import draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most, near
from transformer.config import TransformerConfig
from transformer.model import Transformer

logger = logging.getLogger(__name__)

Norm = Literal["pre", "post"]
NORMS: tuple[Norm, ...] = ("pre", "post")
Sides = dict[str, list[float]]
"""Gradient norms by layer, of "encoder" and "decoder"."""
VOCABULARY, SENTENCES, LENGTH = 100, 8, 20
METHOD = """\
Transformers of width {d} (4 heads, feed-forward {inner}, no dropout) with as many layers in the encoder as
in the decoder, embeddings and output not tied, fresh weights, in fp32. The loss is the mean cross-entropy
over {tokens} random tokens; a layer's gradient is the norm over its feed-forward layer's second matrix, as
in Xiong et al. (figure 3). Means over {draws} draws of weights and tokens. Xiong et al., theorem 1: at the
last layer the gradient does not depend on the depth L with post-norm and falls as 1/sqrt(L) with pre-norm."""


def run(settings: Settings) -> StudyResult:
    """Measure the gradients of every layer for each depth."""
    depths, d, draws = ([1, 2, 4], 16, 2) if settings.quick else ([4, 8, 16, 32], 64, 10)
    norms_by_depth: dict[int, dict[Norm, Sides]] = {}
    for depth in depths:
        logger.info(f"norm: {depth} layers")
        norms_by_depth[depth] = {norm: measure(norm, depth, d, draws) for norm in NORMS}
    summary = [
        summarise(norm, depth, norms_by_depth[depth][norm]["decoder"]) for norm in NORMS for depth in depths
    ]
    deepest = norms_by_depth[depths[-1]]
    layers: list[Row] = [
        {
            "layer": n + 1,
            **{
                f"{norm}_{side}": norms[n] for norm, sides in deepest.items() for side, norms in sides.items()
            },
        }
        for n in range(depths[-1])
    ]
    return StudyResult(
        method=METHOD.format(d=d, inner=4 * d, tokens=SENTENCES * LENGTH, draws=draws),
        tables={
            "depths": Table(
                "Gradient norms of the decoder's layers; spread is the largest over the smallest.", summary
            ),
            "layers": Table(
                f"Gradient norm by layer from the input on, {depths[-1]} layers per side.", layers
            ),
        },
        claims=judge(summary, depths),
        figure=plot(deepest, summary, depths),
    )


def plot(deepest: dict[Norm, Sides], summary: list[Row], depths: list[int]) -> Figure:
    """Plot gradients by layer in the deepest models, and at the last layer over depth."""
    figure, (left, right) = make_panels(2)
    layers = list(range(1, depths[-1] + 1))
    lines = {
        f"{norm}-norm, {side}": (layers, norms)
        for norm, sides in deepest.items()
        for side, norms in sides.items()
    }
    title = f"Gradient by layer, {depths[-1]} layers per side"
    draw_lines(left, lines, title=title, x="layer", y="gradient norm", log="y")
    last = {norm: [row["last"] for row in summary if row["norm"] == norm] for norm in NORMS}
    draw_lines(
        right,
        {f"{norm}-norm": (depths, values) for norm, values in last.items()},
        predicted={"1/sqrt(L)": (depths, [last["pre"][0] * (depths[0] / depth) ** 0.5 for depth in depths])},
        title="Gradient of the decoder's last layer",
        x="depth L (layers per side)",
        y="gradient norm",
        log="xy",
    )
    return figure


def measure(norm: Norm, depth: int, d: int, draws: int) -> Sides:
    """Measure the mean gradient norm of each layer over ``draws`` models, by side."""
    config = TransformerConfig(
        d_model=d,
        encoder_layers=depth,
        decoder_layers=depth,
        ffn_size=4 * d,
        dropout=0.0,
        norm=norm,
        tie="none",
    )
    total = torch.zeros(2, depth)
    for _ in range(draws):
        model = Transformer(config, VOCABULARY, VOCABULARY)
        layers = [*model.encoder.layers, *model.decoder.layers]
        grads = torch.autograd.grad(_random_loss(model), [_second_matrix(layer) for layer in layers])
        total += torch.stack([grad.norm() for grad in grads]).view(2, depth)
    encoder, decoder = (total / draws).tolist()
    return {"encoder": encoder, "decoder": decoder}


def _random_loss(model: Transformer) -> Tensor:
    """Compute the mean cross-entropy of random targets given random sources."""
    src, tgt, out = torch.randint(VOCABULARY, (3, SENTENCES, LENGTH))
    logits = model(src, torch.ones_like(src, dtype=torch.bool), tgt)
    return F.cross_entropy(logits.flatten(0, 1), out.flatten())


def _second_matrix(layer: nn.Module) -> Tensor:
    """Find the second matrix of a layer's feed-forward layer."""
    weight = layer.get_parameter("feed_forward.narrow.weight")
    assert weight is not None
    return weight


def summarise(norm: Norm, depth: int, layers: list[float]) -> Row:
    """Summarise one model's gradient norms: first and last layer, and spread over all layers."""
    return {
        "norm": norm,
        "depth": depth,
        "first": layers[0],
        "last": layers[-1],
        "last_over_first": layers[-1] / layers[0],
        "spread": max(layers) / min(layers),
    }


def judge(summary: list[Row], depths: list[int]) -> list[Claim]:
    """Compare the claims of Xiong et al. 2020 with the table."""
    by_norm = {norm: [row for row in summary if row["norm"] == norm] for norm in NORMS}
    exponents = {
        norm: fit_power_law(depths, [row["last"] for row in rows]).exponent for norm, rows in by_norm.items()
    }
    pre, post = by_norm["pre"][-1], by_norm["post"][-1]
    return [
        near(
            "Post-norm: the last layer's gradient does not depend on depth: exponent",
            exponents["post"],
            0,
            0.15,
        ),
        near("Pre-norm: it falls as 1/sqrt(L): exponent", exponents["pre"], -0.5, 0.15),
        at_least(
            f"Post-norm: gradients grow from the first layer to the last, depth {depths[-1]}: ratio",
            post["last_over_first"],
            1.5,
        ),
        at_least(
            "The last layer's gradient is larger with post-norm, which is why it needs a warm-up: ratio",
            post["last"] / pre["last"],
            2,
        ),
        at_most(
            f"Pre-norm: all layers' gradients are of similar size, depth {depths[-1]}: largest over smallest",
            pre["spread"],
            3,
        ),
    ]
