"""Training with pre-norm and post-norm, with and without warm-up (Xiong et al. 2020, sections 3 and 4).

They report that a post-norm Transformer fails or ends far behind without warm-up, that a pre-norm one needs
none, and that it then trains faster than post-norm with warm-up. The study ``norm`` measures the gradients
that explain it; this one trains.
"""

from collections.abc import Mapping
from dataclasses import replace

from compare.studies.designs import GAP, RULE, SEEDS, Trained, make_plan, plot_losses, tables, train_designs
from compare.studies.kit import differences
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import SHORT_WORDS, Build, short_task, transformer

SOONER = 0.8
"""Share of the updates of post-norm that pre-norm may need to be faster. Xiong et al., figure 3, report about
0.6 on IWSLT14."""


def run(settings: Settings) -> StudyResult:
    """Train the four designs."""
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
    losses = tables(trained)
    return StudyResult(
        method=f"""
            Transformers of {layers} layers per side, d = {d}, 4 heads, without dropout, with pre-norm and
            with post-norm, without warm-up and with {plan.warmup_updates} updates of it, translate the
            embedded corpus ({len(task.train):,} pairs of at most {SHORT_WORDS} source words): {plan.text}.
            Measured: the loss per token on {len(task.valid):,} new pairs. {RULE} a loss is higher if it is so
            by {GAP} nats, training is faster if it reaches the final loss of the other after at most {SOONER}
            of the updates. {SEEDS}""",
        tables=losses,
        claims=judge(trained),
        figure=plot_losses(losses["curves"].rows, "updates", trained),
    )


def judge(trained: Mapping[str, Trained]) -> list[Claim]:
    """Compare the claims of Xiong et al. 2020 with the losses."""
    pre, warm_pre = trained["pre-norm, no warm-up"], trained["pre-norm, warm-up"]
    post, warm_post = trained["post-norm, no warm-up"], trained["post-norm, warm-up"]
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
