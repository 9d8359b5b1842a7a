"""Studies of designs trained with equal effort: warm-up, norm and residual paths, projections, depth, data.

**warmup.** Xiong et al. 2020 (sections 3 and 4) report that a post-norm Transformer fails or ends far behind
without warm-up, that a pre-norm one needs none, and that it then trains faster than post-norm with warm-up.
The study ``norm`` measures the gradients that explain it.

**ablation.** Vaswani et al. 2017 (section 3.1) put layer norm and residual paths around every sublayer and
ablate neither. He et al. 2016 introduce residual paths so that deep networks train, Ba et al. 2016 layer norm
so that they train faster; Dong et al. 2021 show that attention without residual paths loses rank with depth,
so that all positions become alike.

**projections.** Vaswani et al. 2017 (section 3.2.2) project queries, keys and values; Kitaev et al. 2020
(section 5, figure 3) report that one matrix for queries and keys does as well as two. Without any, a state
fits itself best: after layer norm x . x is d, and x . y is about 0 for unlike states.

**concatenation.** Vaswani et al. 2017 (section 3.5) add positions, and find learned vectors as good as
sinusoids. That sinusoids beside the words, from which a network can form any periodic function of the
position, are the more flexible encoding is a conjecture.

**depth.** Wu et al. 2016 (section 3.1) report that simply stacked LSTMs work well up to 4 layers, barely with
6 and very poorly beyond 8, which residual paths mend; Wang et al. 2019 train pre-norm Transformers of 30
encoder layers.

**data-size.** Koehn and Knowles 2017 (section 3.2) report that neural models with attention need much data.
Sennrich and Zhang 2019 show that RNNs with attention do well with little of it, if they are regularised;
Araabi and Monz 2020 that a Transformer with the usual settings does not, and needs other settings. The
expectation tested here is that the Transformer needs more data than an RNN with attention, both regularised
and stopped early.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from compare.models.hybrid import NoResidual
from compare.models.registry import count_weights
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.results.table import Row
from compare.scoring import corpus_bleu
from compare.studies.heads import offsets
from compare.studies.kit import Panel, Points, column, conclude, differences, lines_of, mean
from compare.studies.study import Measured, Settings, StudyResult
from compare.studies.training import (
    SHORT_WORDS,
    TRANSLATORS,
    Build,
    Model,
    Plan,
    Trained,
    TranslationTask,
    lstm,
    make_plan,
    short_task,
    train_designs,
    transformer,
    translator,
)
from data.vocabulary import EOS
from transformer.model import Parts, Transformer

logger = logging.getLogger(__name__)

Designs = Mapping[str, Trained]


def losses(trained: Designs) -> dict[str, Sequence[Row]]:
    """Make the tables of final losses and of mean curves."""
    updates = next(iter(trained.values())).updates
    return {
        "designs": [
            {"design": label, "learning_rate": each.learning_rate, "final_loss": each.mean_curve[-1]}
            | {f"loss_{number}": loss for number, loss in enumerate(each.final, start=1)}
            for label, each in trained.items()
        ],
        "curves": [
            {"updates": n, **{label: each.mean_curve[index] for label, each in trained.items()}}
            for index, n in enumerate(updates)
        ],
    }


def conclude_losses(
    name: str,
    plan: Plan,
    task: TranslationTask,
    trained: Designs,
    measured: Mapping[str, Any],
    predicted: Mapping[str, Points] | None = None,
    **words: Any,
) -> StudyResult:
    """Make the result of a study that compares curves of the loss."""
    tables = losses(trained)
    panel = Panel(lines_of(tables["curves"], "updates", trained), predicted=predicted or {})
    described = words_of(plan, task) | words
    return conclude(name, tables=tables, measured=measured, panels={"losses": panel}, words=described)


def words_of(plan: Plan, task: TranslationTask) -> dict[str, Any]:
    """List the words that the descriptions of these studies share."""
    sizes = {"pairs": len(task.train), "valid": len(task.valid), "short_words": SHORT_WORDS}
    return {"plan": plan, **sizes}


# Warm-up.


def warmup(settings: Settings) -> StudyResult:
    """Train Transformers with pre-norm and post-norm, with and without warm-up."""
    layers, d = (1, 8) if settings.quick else (6, 64)
    plan, task = make_plan(settings), short_task(settings)
    builds: dict[str, Build] = {
        "pre-norm": transformer(d, layers, norm="pre"),
        "post-norm": transformer(d, layers, norm="post"),
    }
    cold = train_designs("no warm-up", builds, task, replace(plan, warmup_updates=0))
    warm = train_designs("warm-up", builds, task, plan)
    trained = {
        f"{norm}, {name}": found[norm]
        for norm in builds
        for name, found in (("no warm-up", cold), ("warm-up", warm))
    }
    return conclude_losses("warmup", plan, task, trained, warmup_claims(trained), layers=layers, d=d)


def warmup_claims(trained: Designs) -> dict[str, Measured]:
    """Compute the measures of the claims of Xiong et al. 2020."""
    pre, warm_pre = trained["pre-norm, no warm-up"], trained["pre-norm, warm-up"]
    post, warm_post = trained["post-norm, no warm-up"], trained["post-norm, warm-up"]

    def shares(each: Trained) -> list[float]:
        """Compute the share of all updates after which each seed reaches the final loss of warm post-norm."""
        return [
            next((n for n, loss in zip(each.updates, curve, strict=True) if loss <= goal), math.inf)
            / each.updates[-1]
            for curve, goal in zip(each.curves, warm_post.final, strict=True)
        ]

    return {
        "post_needs": differences(post.final, warm_post.final),
        "pre_does_not": differences(pre.final, warm_pre.final),
        "post_higher": differences(post.final, pre.final),
        "cold_faster": shares(pre),
        "warm_faster": shares(warm_pre),
    }


# Layer norm and residual paths.


FULL, NO_NORM, NO_RESIDUAL, NEITHER = "both", "no layer norm", "no residual paths", "neither"


def ablation(settings: Settings) -> StudyResult:
    """Train a Transformer with both parts, without each, and without both."""
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
    updates, measured = trained[FULL].updates, ablation_claims(trained, frequency)
    by_frequency = {"word frequencies": (updates, [frequency] * len(updates))}
    words = {"layers": layers, "d": d, "frequency": frequency}
    return conclude_losses("ablation", plan, task, trained, measured, by_frequency, **words)


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


def ablation_claims(trained: Designs, frequency: float) -> dict[str, Measured]:
    """Compute the measures of the claims about the ablation."""
    parts = {"norm": NO_NORM, "residual": NO_RESIDUAL, "one": NEITHER}
    needed = {key: differences(trained[label].final, trained[FULL].final) for key, label in parts.items()}
    return {**needed, "frequencies": [loss - frequency for loss in trained[NEITHER].final]}


# Projections, and concatenated positions: one setting of a Transformer changed.


SEPARATE, SHARED, NONE = "W_Q, W_K, W_V", "W_Q = W_K, W_V", "none"
UNSCALED, WIDER = "none, unscaled", "none, wider feed-forward"


def projections(settings: Settings) -> StudyResult:
    """Train a Transformer with one head with its projections, with one for queries and keys, and without."""
    d = 8 if settings.quick else 64
    wide = 7 * d  # an encoder layer lacks 4 d^2 weights, a decoder layer 8 d^2: 3 d units in each of both
    return contrast(
        "projections",
        settings,
        {
            SEPARATE: transformer(d, num_heads=1),
            SHARED: transformer(d, num_heads=1, projections="shared-qk"),
            NONE: transformer(d, num_heads=1, projections="none"),
            UNSCALED: transformer(d, num_heads=1, projections="none", attention_kind="unscaled"),
            WIDER: transformer(d, num_heads=1, projections="none", ffn_size=wide),
        },
        projection_claims,
        d=d,
        wide=wide,
    )


def projection_claims(trained: Designs, task: TranslationTask) -> dict[str, Measured]:
    """Compute the measures of the claims about projections."""
    separate, shared, none = (trained[label].final for label in (SEPARATE, SHARED, NONE))
    return {
        "needed": differences(none, separate),
        "not_size": differences(trained[WIDER].final, separate),
        "shared": differences(shared, separate),
        "scale": differences(trained[UNSCALED].final, none),
        "itself": [weight_on_itself(model, task) for model in trained[NONE].models],
        "others": [weight_on_itself(model, task) for model in trained[SEPARATE].models],
    }


@torch.inference_mode()
def weight_on_itself(model: Model, task: TranslationTask) -> float:
    """Compute the mean weight of a token on itself in the encoder, over validation sources and layers."""
    batch = task.valid_batch
    weights = cast("Transformer", model).encoder.attention(batch.src, batch.src_mask)
    return mean([offsets(layer[:, 0], batch.src_mask)["itself"] for layer in weights.values()])


POSITIONS = {"sinusoidal": "concat", "learned": "concat-learned"}
"""Added positions, and the same ones concatenated."""


def concatenation(settings: Settings) -> StudyResult:
    """Train a Transformer with added and with concatenated positions, sinusoidal and learned."""
    d = 8 if settings.quick else 64
    builds = {kind: transformer(d, positions=kind) for kinds in POSITIONS.items() for kind in kinds}
    return contrast("concatenation", settings, builds, concatenation_claims, d=d, share=d // 4)


def concatenation_claims(trained: Designs, _: TranslationTask) -> dict[str, Measured | dict[str, Measured]]:
    """Compute the measures of the claims about concatenated positions."""
    return {
        "better": {
            added: differences(trained[added].final, trained[beside].final)
            for added, beside in POSITIONS.items()
        },
        "flexible": differences(trained["concat"].final, trained["concat-learned"].final),
    }


def contrast(
    name: str,
    settings: Settings,
    builds: Mapping[str, Build],
    measure: Callable[[Designs, TranslationTask], Mapping[str, Any]],
    **words: Any,
) -> StudyResult:
    """Train some designs on the same sentences and plot their losses."""
    plan, task = make_plan(settings), short_task(settings)
    trained = train_designs(name, builds, task, plan)
    return conclude_losses(name, plan, task, trained, measure(trained, task), **words)


# Depth.


FAMILIES = (TRANSFORMER, RECURRENT)


def depth(settings: Settings) -> StudyResult:
    """Train Transformers and LSTMs with attention at every depth."""
    depths = (1, 2) if settings.quick else (1, 2, 4, 8)
    d, hidden = (8, 8) if settings.quick else (64, 88)
    plan, task = make_plan(settings), short_task(settings)
    builds: dict[str, Build] = {}
    for layers in depths:
        builds[name(TRANSFORMER, layers)] = transformer(d, layers)
        builds[name(RECURRENT, layers)] = lstm(RECURRENT, hidden, num_layers=layers, tie="output")
    trained = train_designs("depth", builds, task, plan)
    weights = {label: count_weights(build(*task.sizes)) for label, build in builds.items()}
    layer_sizes = " and ".join(
        f"{weights[name(family, 2)] - weights[name(family, 1)]:,} ({family})" for family in FAMILIES
    )
    rows: list[Row] = [
        {
            "depth": layers,
            **{family: trained[name(family, layers)].mean_curve[-1] for family in FAMILIES},
            **{f"weights of {family}": weights[name(family, layers)] for family in FAMILIES},
        }
        for layers in depths
    ]
    return conclude(
        "depth",
        tables={"depths": rows, **losses(trained)},
        measured=depth_claims(trained, depths),
        panels={"losses": Panel(lines_of(rows, "depth", FAMILIES))},
        words=words_of(plan, task)
        | {"d": d, "hidden": hidden, "depths": ", ".join(map(str, depths)), "layer_sizes": layer_sizes}
        | {"first": depths[0], "last": depths[-1]},
    )


def name(family: str, layers: int) -> str:
    """Name a design."""
    return f"{family}, {layers} layer{'s' * (layers > 1)}"


def depth_claims(trained: Designs, depths: Sequence[int]) -> dict[str, Measured]:
    """Compute the measures of the claims about depth."""
    gains, excess = {}, {}
    for family in FAMILIES:
        first, *_, last = finals = [trained[name(family, layers)].final for layers in depths]
        gains[family] = differences(first, last)
        excess[family] = differences(last, [min(losses) for losses in zip(*finals[:-1], strict=True)])
    return {
        "helps": gains[TRANSFORMER],
        "helps_more": differences(gains[TRANSFORMER], gains[RECURRENT]),
        "bears": excess[TRANSFORMER],
        "does_not": excess[RECURRENT],
    }


# Size of the data.


def data_size(settings: Settings) -> StudyResult:
    """Train every family with every number of pairs, and score its translations."""
    sizes, d = ((30, 60), 8) if settings.quick else ((500, 2_000, 8_000), 128)
    dropout = 0.2
    plan = make_plan(settings, measure_every=50, learning_rates=(3e-3, 8e-3))
    builds = {family: translator(family, d, dropout) for family in TRANSLATORS}
    rows: list[Row] = []
    for pairs in sizes:
        task = short_task(settings, pairs=pairs, tests=300)
        for family, trained in train_designs(f"data-size: {pairs:,} pairs", builds, task, plan).items():
            for seed, curve, model in zip(plan.seeds, trained.curves, trained.models, strict=True):
                bleu = corpus_bleu(task.translate(model), task.test.tgt)
                logger.info(f"data-size: {pairs:,} pairs, {family}, seed {seed}: BLEU {bleu:.1f}")
                row = {"pairs": pairs, "model": family, "seed": seed, "bleu": bleu, "loss": min(curve)}
                row |= {"learning_rate": trained.learning_rate, "weights": count_weights(model)}
                rows.append({**row, "words": task.sizes[1]})
    means: list[Row] = [
        {"pairs": pairs}
        | {family: mean(column(rows, "bleu", model=family, pairs=pairs)) for family in TRANSLATORS}
        for pairs in sizes
    ]
    return conclude(
        "data-size",
        tables={"bleu": means, "runs": rows},
        measured=data_size_claims(rows, sizes),
        panels={"bleu": Panel(lines_of(means, "pairs", TRANSLATORS))},
        words=words_of(plan, task)
        | {"d": d, "dropout": dropout, "tests": len(task.test.src)}
        | {"sizes": ", ".join(f"{pairs:,}" for pairs in sizes), "fewest": sizes[0], "most": sizes[-1]},
    )


def data_size_claims(rows: Iterable[Row], sizes: Sequence[int]) -> dict[str, Measured]:
    """Compute the measures of the claims about the number of pairs."""
    fewest, most = sizes[0], sizes[-1]
    plain, recurrent, transformer = (
        {pairs: column(rows, "bleu", model=family, pairs=pairs) for pairs in sizes} for family in TRANSLATORS
    )
    ahead = {pairs: differences(transformer[pairs], recurrent[pairs]) for pairs in (fewest, most)}
    return {
        "few": [-value for value in ahead[fewest]],
        "gains_more": differences(ahead[most], ahead[fewest]),
        "many": ahead[most],
        "attention": differences(recurrent[fewest], plain[fewest]),
    }
