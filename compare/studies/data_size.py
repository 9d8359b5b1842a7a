"""Translation quality by number of training pairs, which shows who needs more data.

Koehn and Knowles 2017 (section 3.2) report that neural models with attention need much data. Sennrich and
Zhang 2019 show that RNNs with attention do well with little of it, if they are regularised; Araabi and Monz
2020 that a Transformer with the usual settings does not, and needs other settings. The expectation tested
here is that the Transformer needs more data than an RNN with attention, both regularised and stopped early.
"""

import logging
from collections.abc import Sequence

from compare.analysis.tables import Row, Table
from compare.scoring.score import corpus_bleu
from compare.studies.designs import RULE, SEEDS, count_weights, make_plan, train_designs
from compare.studies.kit import Panel, column, differences, draw_panels, lines_of, mean
from compare.studies.study import Claim, Settings, StudyResult, at_least
from compare.studies.tasks import SHORT_WORDS, TRANSLATORS, short_task, translator

logger = logging.getLogger(__name__)

GAIN = 2.0
"""BLEU by which one model must exceed another."""


def run(settings: Settings) -> StudyResult:
    """Train every family with every number of pairs."""
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
                rows.append(
                    {
                        "pairs": pairs,
                        "model": family,
                        "seed": seed,
                        "bleu": bleu,
                        "loss": min(curve),
                        "learning_rate": trained.learning_rate,
                        "weights": count_weights(model),
                        "words": task.sizes[1],
                    }
                )
    means: list[Row] = [
        {
            "pairs": pairs,
            **{family: mean(column(rows, "bleu", model=family, pairs=pairs)) for family in TRANSLATORS},
        }
        for pairs in sizes
    ]
    return StudyResult(
        method=f"""
            An LSTM without attention, an LSTM with additive attention and a pre-norm Transformer (d = {d},
            dropout {dropout}, sizes in the table) translate sentences of at most {SHORT_WORDS} source words
            of the embedded corpus after training on its first {", ".join(f"{pairs:,}" for pairs in sizes)}
            pairs, with a vocabulary of the words in these. All have the same effort whatever the number of
            pairs: {plan.text_with_warmup}; the weights of the lowest loss on {len(task.valid):,} validation
            pairs are kept, which stops early where training overfits. BLEU (sacreBLEU, 13a, cased) of
            {len(task.test.src):,} test pairs, greedy search; test and validation pairs are the same for all.
            {RULE} a difference counts from {GAIN:g} BLEU on. {SEEDS}""",
        tables={
            "bleu": Table("Mean BLEU by number of training pairs.", means),
            "runs": Table(
                "BLEU, lowest validation loss (nats per target token), learning rate chosen, weights, and "
                "target vocabulary of each training.",
                rows,
            ),
        },
        claims=judge(rows, sizes),
        figure=draw_panels(
            Panel(
                title="Mean over seeds",
                x="training pairs",
                y="BLEU",
                lines=lines_of(means, "pairs", TRANSLATORS),
                log="x",
                limits=(0, None),
            )
        ),
    )


def judge(rows: list[Row], sizes: Sequence[int]) -> list[Claim]:
    """Compare the claims with the scores of each seed."""
    fewest, most = sizes[0], sizes[-1]
    plain, recurrent, transformer = (
        {pairs: column(rows, "bleu", model=family, pairs=pairs) for pairs in sizes} for family in TRANSLATORS
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
