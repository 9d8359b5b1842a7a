"""A Transformer without layer norm, without residual paths, and without both.

Vaswani et al. 2017 (section 3.1) put both around every sublayer and ablate neither. He et al. 2016 introduce
residual paths so that deep networks train, Ba et al. 2016 layer norm so that they train faster; Dong et al.
2021 show that attention without residual paths loses rank with depth, so that all positions become alike.
"""

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from compare.studies.designs import GAP, RULE, SEEDS, Trained, make_plan, plot_losses, tables, train_designs
from compare.studies.kit import differences
from compare.studies.study import Claim, Settings, StudyResult, at_least
from compare.studies.tasks import SHORT_WORDS, Build, TranslationTask, short_task, transformer
from data.symbols import EOS
from transformer.layers import Parts, Residual

FULL, NO_NORM, NO_RESIDUAL, NEITHER = "both", "no layer norm", "no residual paths", "neither"


class NoResidual(Residual):
    """f(norm(x)), or norm(f(x)): a sublayer without residual path."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sublayer to x (B, T, D)."""
        output: Tensor = self.dropout(sublayer(self.norm(x)) if self.pre else self.norm(sublayer(x)))
        return output


def run(settings: Settings) -> StudyResult:
    """Train the four designs."""
    layers, d = (2, 8) if settings.quick else (6, 64)
    plan, task = make_plan(settings), short_task(settings)
    without = Parts(residual=NoResidual)
    builds: dict[str, Build] = {
        FULL: transformer(d, layers),
        NO_NORM: transformer(d, layers, norm="none"),
        NO_RESIDUAL: transformer(d, layers, without),
        NEITHER: transformer(d, layers, without, norm="none"),
    }
    trained, frequency = train_designs("ablation", builds, task, plan), frequency_loss(task)
    losses, updates = tables(trained), trained[FULL].updates
    return StudyResult(
        method=f"""
            A pre-norm Transformer of {layers} layers per side, d = {d}, 4 heads, without dropout, with both,
            without layer norm (nor the last one of a side), without residual paths (norm and sublayer
            remain), and without either, translates the embedded corpus ({len(task.train):,} pairs of at most
            {SHORT_WORDS} source words): {plan.text_with_warmup}. Measured: the loss per token on
            {len(task.valid):,} new pairs. Words drawn by their frequency in training have a loss of
            {frequency:.2f}. {RULE} a part is needed if the loss without it is higher by {GAP} nats; a model
            learns nothing but frequencies if it is not below theirs by as much. {SEEDS}""",
        tables=losses,
        claims=judge(trained, frequency),
        figure=plot_losses(
            losses["curves"].rows,
            "updates",
            trained,
            predicted={"word frequencies": (updates, [frequency] * len(updates))},
        ),
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


def judge(trained: Mapping[str, Trained], frequency: float) -> list[Claim]:
    """Compare the claims with the losses."""
    full, neither = trained[FULL].final, trained[NEITHER].final
    needed = (("Layer norm is", NO_NORM), ("Residual paths are", NO_RESIDUAL), ("One of them is", NEITHER))
    return [
        *(
            at_least(
                f"{part} needed: loss with {label}, minus loss with both",
                differences(trained[label].final, full),
                GAP,
            )
            for part, label in needed
        ),
        at_least(
            "With neither, nothing is learned but frequencies: loss minus that of word frequencies",
            [loss - frequency for loss in neither],
            -GAP,
        ),
    ]
