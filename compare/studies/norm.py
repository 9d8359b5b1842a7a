"""Gradients of each layer at initialisation with pre-norm and post-norm (Xiong et al. 2020, section 3)."""

import logging
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compare.analysis.tables import Row, Table
from compare.studies.kit import Panel, draw_panels, exponent, lines_by, lines_of
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most, near
from compare.studies.tasks import transformer
from transformer.model import Transformer

logger = logging.getLogger(__name__)

Norm = Literal["pre", "post"]
NORMS: tuple[Norm, ...] = ("pre", "post")
Sides = dict[str, list[float]]
"""Gradient norms by layer, of "encoder" and "decoder"."""
VOCABULARY, SENTENCES, LENGTH = 100, 8, 20


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
    deepest = {
        f"{norm}_{side}": norms
        for norm, sides in norms_by_depth[depths[-1]].items()
        for side, norms in sides.items()
    }
    layers: list[Row] = [
        {"layer": n + 1, **{name: norms[n] for name, norms in deepest.items()}} for n in range(depths[-1])
    ]
    first = summary[0]["last"]
    return StudyResult(
        method=f"""
            Transformers of width {d} (4 heads, feed-forward {4 * d}, no dropout) with as many layers in the
            encoder as in the decoder, embeddings and output not tied, fresh weights, in fp32. The loss is the
            mean cross-entropy over {SENTENCES * LENGTH} random tokens; a layer's gradient is the norm over
            its feed-forward layer's second matrix, as in Xiong et al. (figure 3). Means over {draws} draws of
            weights and tokens. Xiong et al., theorem 1: at the last layer the gradient does not depend on the
            depth L with post-norm and falls as 1/sqrt(L) with pre-norm.""",
        tables={
            "depths": Table(
                "Gradient norms of the decoder's layers; spread is the largest over the smallest.", summary
            ),
            "layers": Table(
                f"Gradient norm by layer from the input on, {depths[-1]} layers per side.", layers
            ),
        },
        claims=judge(summary, depths),
        figure=draw_panels(
            Panel(
                title=f"Gradient by layer, {depths[-1]} layers per side",
                x="layer",
                y="gradient norm",
                lines=lines_of(layers, "layer", deepest),
                log="y",
            ),
            Panel(
                title="Gradient of the decoder's last layer",
                x="depth L (layers per side)",
                y="gradient norm",
                lines=lines_by(summary, "norm", "depth", "last"),
                predicted={"1/sqrt(L)": (depths, [first * (depths[0] / depth) ** 0.5 for depth in depths])},
                log="xy",
            ),
        ),
    )


def measure(norm: Norm, depth: int, d: int, draws: int) -> Sides:
    """Measure the mean gradient norm of each layer over ``draws`` models, by side."""
    build = transformer(d, depth, norm=norm, tie="none")
    total = torch.zeros(2, depth)
    for _ in range(draws):
        model = build(VOCABULARY, VOCABULARY)
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
    return layer.get_parameter("feed_forward.narrow.weight")


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
    pre, post = by_norm["pre"][-1], by_norm["post"][-1]
    return [
        near(
            "Post-norm: the last layer's gradient does not depend on depth: exponent",
            exponent(by_norm["post"], "depth", "last"),
            0,
            0.15,
        ),
        near(
            "Pre-norm: it falls as 1/sqrt(L): exponent", exponent(by_norm["pre"], "depth", "last"), -0.5, 0.15
        ),
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
