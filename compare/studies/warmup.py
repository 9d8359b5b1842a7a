"""Training with pre-norm and post-norm, with and without warm-up (Xiong et al. 2020, sections 3 and 4).

They report that a post-norm Transformer fails or ends far behind without warm-up, that a pre-norm one needs
none, and that it then trains faster than post-norm with warm-up. The study ``norm`` measures the gradients
that explain it; this one trains.
"""

from functools import partial
from typing import Literal

from matplotlib.figure import Figure

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
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import SHORT_WORDS, build_deep_transformer, short_task
from transformer.layers import STANDARD

Norm = Literal["pre", "post"]
GAP = 0.1
"""Nats per token by which a loss must exceed another; the perplexity is then 11% higher."""
SOONER = 0.8
"""Share of the updates of post-norm that pre-norm may need to be faster. Xiong et al., figure 3, report about
0.6 on IWSLT14."""
METHOD = """\
Transformers of {layers} layers per side, d = {d}, 4 heads, without dropout, with pre-norm and with post-norm,
without warm-up and with {warmup} updates of it, translate the embedded corpus ({pairs:,} pairs of
at most {words} source words):
{plan}.
Measured: the loss per token on {valid:,} new pairs. Each claim is tested for every seed. The rules
were fixed before: a loss is higher if it is so by {gap} nats, training is faster if it reaches the final
loss of the other after at most {sooner} of the updates. Hold means with all seeds; undecided: with some."""


def run(settings: Settings) -> StudyResult:
    """Train the four designs."""
    layers, d = (1, 8) if settings.quick else (6, 64)
    warmup = 1 if settings.quick else 100
    plan = make_plan(settings, updates=600)
    designs = {
        name(norm, updates > 0): Design(
            build=partial(build_deep_transformer, layers, d, norm, STANDARD), warmup_updates=updates
        )
        for norm in ("pre", "post")
        for updates in (0, warmup)
    }
    task = short_task(settings)
    trained = train_designs("warmup", designs, task, plan)
    method = METHOD.format(
        layers=layers,
        d=d,
        warmup=warmup,
        pairs=len(task.train),
        words=SHORT_WORDS,
        plan=plan.text,
        valid=len(task.valid),
        gap=GAP,
        sooner=SOONER,
    )
    return StudyResult(method=method, tables=tables(trained), claims=judge(trained), figure=plot(trained))


def name(norm: Norm, has_warmup: bool) -> str:
    """Name a design."""
    return f"{norm}-norm, {'warm-up' if has_warmup else 'no warm-up'}"


def plot(trained: dict[str, Trained]) -> Figure:
    """Plot the mean curves."""
    figure, (axes,) = make_panels(1)
    draw_lines(
        axes, lines(trained), title="Mean over seeds", x="updates", y="validation loss (nats per token)"
    )
    return figure


def judge(trained: dict[str, Trained]) -> list[Claim]:
    """Compare the claims of Xiong et al. 2020 with the losses."""
    pre, post = trained[name("pre", False)], trained[name("post", False)]
    warm_pre, warm_post = trained[name("pre", True)], trained[name("post", True)]
    return [
        at_least(
            "Post-norm needs the warm-up: loss without, minus loss with it",
            differences(post.final, warm_post.final),
            GAP,
        ),
        at_most(
            "Pre-norm does not: loss without, minus loss with it", differences(pre.final, warm_pre.final), GAP
        ),
        at_least(
            "Without warm-up post-norm ends higher: its loss minus that of pre-norm",
            differences(post.final, pre.final),
            GAP,
        ),
        at_most(
            "Pre-norm without warm-up is faster than post-norm with it: share of the updates to that loss",
            shares(pre, warm_post),
            SOONER,
        ),
        at_most(
            "So is pre-norm with warm-up: share of the updates to that loss",
            shares(warm_pre, warm_post),
            SOONER,
        ),
    ]


def shares(trained: Trained, other: Trained) -> list[float]:
    """Compute the share of all updates after which each seed reaches the final loss of ``other``."""
    return [updates / other.updates[-1] for updates in trained.updates_until(other.final)]
