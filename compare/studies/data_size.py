"""Translation quality by number of training pairs, which shows who needs more data.

Koehn and Knowles 2017 (section 3.2) report that neural models with attention need much data. Sennrich and
Zhang 2019 show that RNNs with attention do well with little of it, if they are regularised; Araabi and Monz
2020 that a Transformer with the usual settings does not, and needs other settings. The expectation tested
here is that the Transformer needs more data than an RNN with attention, both regularised and stopped early.
"""

import logging
from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from compare.analysis.tables import Row, Table
from compare.report.plots import make_panels
from compare.scoring.score import corpus_bleu
from compare.studies.designs import Design, differences, make_plan, train_designs
from compare.studies.figures import draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least
from compare.studies.tasks import SHORT_WORDS, TRANSLATORS, build_translator, short_task

logger = logging.getLogger(__name__)

GAIN = 2.0
"""BLEU by which one model must exceed another."""
DROPOUT = 0.2
METHOD = """\
An LSTM without attention, an LSTM with additive attention and a pre-norm Transformer (d = {d}, dropout
{dropout}, sizes in the table) translate sentences of at most {words}
source words of the embedded corpus after training on its first {sizes} pairs, with a
vocabulary of the words in these. All have the same effort whatever the number of pairs: {plan}, after
{warmup} updates of warm-up; the weights of the lowest loss on {valid:,} validation pairs are kept, which
stops early where training overfits. BLEU (sacreBLEU, 13a, cased) of {tests:,} test pairs, greedy search; test
and validation pairs are the same for all. Each claim is tested for every seed. The rule was fixed before: a
difference counts from {gain:g} BLEU on. Hold means with all seeds; undecided: with some."""


def run(settings: Settings) -> StudyResult:
    """Train every family with every number of pairs."""
    sizes = (30, 60) if settings.quick else (500, 2_000, 8_000)
    d = 8 if settings.quick else 128
    warmup = 1 if settings.quick else 100
    plan = make_plan(settings, updates=600, measure_every=50, learning_rates=(3e-3, 8e-3))
    designs = {
        family: Design(build=partial(build_translator, family, d, DROPOUT), warmup_updates=warmup)
        for family in TRANSLATORS
    }
    rows: list[Row] = []
    for pairs in sizes:
        task = short_task(settings, pairs=pairs, tests=300)
        for family, trained in train_designs(f"data-size: {pairs:,} pairs", designs, task, plan).items():
            for seed, curve, model in zip(plan.seeds, trained.curves, trained.models, strict=True):
                bleu = corpus_bleu(task.translate(model), task.test.tgt)
                logger.info(f"data-size: {pairs:,} pairs, {family}, seed {seed}: BLEU {bleu:.1f}")
                rows.append(
                    {
                        "pairs": pairs,
                        "model": family,
                        "seed": seed,
                        "bleu": bleu,
                        "loss": min(curve),
                        "learning_rate": trained.learning_rate,
                        "weights": sum(weights.numel() for weights in model.parameters()),
                        "words": task.sizes[1],
                    }
                )
    method = METHOD.format(
        d=d,
        dropout=DROPOUT,
        words=SHORT_WORDS,
        sizes=", ".join(f"{pairs:,}" for pairs in sizes),
        plan=plan.text,
        warmup=warmup,
        valid=len(task.valid),
        tests=len(task.test.src),
        gain=GAIN,
    )
    means = average(rows, sizes)
    return StudyResult(
        method=method,
        tables={
            "bleu": Table("Mean BLEU by number of training pairs.", means),
            "runs": Table(
                "BLEU, lowest validation loss (nats per target token), learning rate chosen, weights, and "
                "target vocabulary of each training.",
                rows,
            ),
        },
        claims=judge(rows, sizes),
        figure=plot(means),
    )


def by_seed(rows: list[Row], family: str, pairs: int) -> list[float]:
    """Return the BLEU of each seed of a family with a number of pairs."""
    return [row["bleu"] for row in rows if (row["model"], row["pairs"]) == (family, pairs)]


def average(rows: list[Row], sizes: Sequence[int]) -> list[Row]:
    """Average BLEU over seeds, by number of pairs and family."""
    return [
        {"pairs": pairs}
        | {
            family: sum(scores) / len(scores)
            for family in TRANSLATORS
            if (scores := by_seed(rows, family, pairs))
        }
        for pairs in sizes
    ]


def plot(means: list[Row]) -> Figure:
    """Plot mean BLEU by number of pairs."""
    figure, (axes,) = make_panels(1)
    sizes = [row["pairs"] for row in means]
    lines = {family: (sizes, [row[family] for row in means]) for family in TRANSLATORS}
    draw_lines(axes, lines, title="Mean over seeds", x="training pairs", y="BLEU", log="x")
    axes.set_ylim(bottom=0)
    return figure


def judge(rows: list[Row], sizes: Sequence[int]) -> list[Claim]:
    """Compare the claims with the scores of each seed."""
    fewest, most = sizes[0], sizes[-1]
    plain, recurrent, transformer = (
        {pairs: by_seed(rows, family, pairs) for pairs in sizes} for family in TRANSLATORS
    )
    ahead = {pairs: differences(transformer[pairs], recurrent[pairs]) for pairs in (fewest, most)}
    return [
        at_least(
            f"With {fewest:,} pairs the LSTM with attention is ahead of the Transformer: BLEU",
            [-value for value in ahead[fewest]],
            GAIN,
        ),
        at_least(
            f"The Transformer gains more from {most:,} pairs than the LSTM with attention: BLEU",
            differences(ahead[most], ahead[fewest]),
            GAIN,
        ),
        at_least(
            f"With {most:,} pairs the Transformer is ahead of the LSTM with attention: BLEU",
            ahead[most],
            GAIN,
        ),
        at_least(
            f"Attention saves data: with {fewest:,} pairs the LSTM with it is ahead of that without: BLEU",
            differences(recurrent[fewest], plain[fewest]),
            GAIN,
        ),
    ]
