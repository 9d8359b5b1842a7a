"""A Transformer without layer norm, without residual paths, and without both.

Vaswani et al. 2017 (section 3.1) put both around every sublayer and ablate neither. He et al. 2016 introduce
residual paths so that deep networks train, Ba et al. 2016 layer norm so that they train faster; Dong et al.
2021 show that attention without residual paths loses rank with depth, so that all positions become alike.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from compare.report.plots import make_panels
from compare.studies.designs import (
    Design,
    Trained,
    differences,
    lines,
    make_plan,
    tables,
    train_designs,
)
from compare.studies.figures import draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least
from compare.studies.tasks import SHORT_WORDS, TranslationTask, build_deep_transformer, short_task
from data.symbols import EOS
from transformer.config import Norm
from transformer.layers import STANDARD, Parts, Residual

FULL, NO_NORM, NO_RESIDUAL, NEITHER = "both", "no layer norm", "no residual paths", "neither"
GAP = 0.1
"""Nats per token by which a loss must exceed another; the perplexity is then 11% higher."""
METHOD = """\
A pre-norm Transformer of {layers} layers per side, d = {d}, 4 heads, without dropout, with both, without
layer norm (nor the last one of a side), without residual paths (norm and sublayer remain), and without
either, translates the embedded corpus ({pairs:,} pairs of
at most {words} source words): {plan}, after {warmup} updates of warm-up.
Measured: the loss per token on {valid:,} new pairs. Words drawn by their frequency in training
have a loss of {frequency:.2f}. Each claim is tested for every seed. The rule was fixed before: a part is
needed if the loss without it is higher by {gap} nats; a model learns nothing but frequencies if it is not
below theirs by as much. Hold means with all seeds; undecided: with some."""


class NoResidual(Residual):
    """f(norm(x)), or norm(f(x)): a sublayer without residual path."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sublayer to x (B, T, D)."""
        output: Tensor = self.dropout(sublayer(self.norm(x)) if self.pre else self.norm(sublayer(x)))
        return output


WITHOUT = Parts(residual=NoResidual)


def run(settings: Settings) -> StudyResult:
    """Train the four designs."""
    layers, d = (2, 8) if settings.quick else (6, 64)
    warmup = 1 if settings.quick else 100
    plan = make_plan(settings, updates=600)
    variants: tuple[tuple[str, Norm, Parts], ...] = (
        (FULL, "pre", STANDARD),
        (NO_NORM, "none", STANDARD),
        (NO_RESIDUAL, "pre", WITHOUT),
        (NEITHER, "none", WITHOUT),
    )
    designs = {
        label: Design(build=partial(build_deep_transformer, layers, d, norm, parts), warmup_updates=warmup)
        for label, norm, parts in variants
    }
    task = short_task(settings)
    trained, frequency = train_designs("ablation", designs, task, plan), frequency_loss(task)
    method = METHOD.format(
        layers=layers,
        d=d,
        pairs=len(task.train),
        words=SHORT_WORDS,
        plan=plan.text,
        warmup=warmup,
        valid=len(task.valid),
        frequency=frequency,
        gap=GAP,
    )
    return StudyResult(
        method=method,
        tables=tables(trained),
        claims=judge(trained, frequency),
        figure=plot(trained, frequency),
    )


def frequency_loss(task: TranslationTask) -> float:
    """Compute the loss of target tokens that are drawn by their frequency in training.

    Every entry of the vocabulary counts once more than it occurs (Laplace), and so does the end of sentence.
    """
    size, ends = task.sizes[1], len(task.train)
    counts = np.bincount(task.train.tgt.take(np.arange(ends)).flat, minlength=size) + 1
    counts[EOS] += ends
    batch = task.valid_batch
    tokens = batch.tgt_out[batch.tgt_mask].numpy()
    return float(np.mean(np.log(counts.sum()) - np.log(counts[tokens])))


def plot(trained: dict[str, Trained], frequency: float) -> Figure:
    """Plot the mean curves."""
    figure, (axes,) = make_panels(1)
    updates = trained[FULL].updates
    draw_lines(
        axes,
        lines(trained),
        predicted={"word frequencies": (updates, [frequency] * len(updates))},
        title="Mean over seeds",
        x="updates",
        y="validation loss (nats per token)",
    )
    return figure


def judge(trained: dict[str, Trained], frequency: float) -> list[Claim]:
    """Compare the claims with the losses."""
    full = trained[FULL].final
    claims = [
        at_least(
            f"{part} needed: loss with {label}, minus loss with both",
            differences(trained[label].final, full),
            GAP,
        )
        for part, label in (
            ("Layer norm is", NO_NORM),
            ("Residual paths are", NO_RESIDUAL),
            ("One of them is", NEITHER),
        )
    ]
    above = [loss - frequency for loss in trained[NEITHER].final]
    return [
        *claims,
        at_least(
            "With neither, nothing is learned but frequencies: loss minus that of word frequencies",
            above,
            -GAP,
        ),
    ]
