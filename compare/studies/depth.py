"""Depth of Transformers and of recurrent models with attention, trained.

Wu et al. 2016 (section 3.1) report that simply stacked LSTMs work well up to 4 layers, barely with 6 and very
poorly beyond 8, which residual paths mend; Wang et al. 2019 train pre-norm Transformers of 30 encoder layers.
"""

from collections.abc import Mapping, Sequence

from compare.analysis.tables import Row, Table
from compare.studies.designs import (
    GAP,
    RULE,
    SEEDS,
    Trained,
    count_weights,
    make_plan,
    plot_losses,
    tables,
    train_designs,
)
from compare.studies.kit import differences
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import RECURRENT, SHORT_WORDS, TRANSFORMER, Build, lstm, short_task, transformer

FAMILIES = (TRANSFORMER, RECURRENT)


def run(settings: Settings) -> StudyResult:
    """Train both families at every depth."""
    depths = (1, 2) if settings.quick else (1, 2, 4, 8)
    d, hidden = (8, 8) if settings.quick else (64, 88)
    plan, task = make_plan(settings), short_task(settings)
    builds: dict[str, Build] = {}
    for depth in depths:
        builds[name(TRANSFORMER, depth)] = transformer(d, depth)
        builds[name(RECURRENT, depth)] = lstm(RECURRENT, hidden, num_layers=depth, tie="output")
    trained = train_designs("depth", builds, task, plan)
    weights = {label: count_weights(build(*task.sizes)) for label, build in builds.items()}
    layer_sizes = " and ".join(
        f"{weights[name(family, 2)] - weights[name(family, 1)]:,} ({family})" for family in FAMILIES
    )
    rows: list[Row] = [
        {
            "depth": depth,
            **{family: trained[name(family, depth)].mean_curve[-1] for family in FAMILIES},
            **{f"weights of {family}": weights[name(family, depth)] for family in FAMILIES},
        }
        for depth in depths
    ]
    return StudyResult(
        method=f"""
            Pre-norm Transformers (d = {d}, 4 heads) and LSTMs with additive attention (states of {hidden},
            the encoder in both directions, residual paths from the third layer on) of
            {", ".join(map(str, depths))} layers per side, without dropout, translate the embedded corpus
            ({len(task.train):,} pairs of at most {SHORT_WORDS} source words): {plan.text_with_warmup}. A
            layer of an encoder and one of a decoder have {layer_sizes} weights. All depths see the same
            batches. Measured: the loss per token on {len(task.valid):,} new pairs. {RULE} a loss is lower if
            it is so by {GAP} nats. {SEEDS}""",
        tables={
            "depths": Table("Mean final validation loss (nats per target token) and weights.", rows),
            **tables(trained),
        },
        claims=judge(trained, depths),
        figure=plot_losses(rows, "depth", FAMILIES, label="layers per side", log="x"),
    )


def name(family: str, depth: int) -> str:
    """Name a design."""
    return f"{family}, {depth} layer{'s' * (depth > 1)}"


def judge(trained: Mapping[str, Trained], depths: Sequence[int]) -> list[Claim]:
    """Compare the claims with the losses."""
    first, *_, last = depths
    gains, excess = {}, {}
    for family in FAMILIES:
        finals = {depth: trained[name(family, depth)].final for depth in depths}
        gains[family] = differences(finals[first], finals[last])
        shallower = [min(losses) for losses in zip(*(finals[depth] for depth in depths[:-1]), strict=True)]
        excess[family] = differences(finals[last], shallower)
    return [
        at_least(
            f"Depth helps the Transformer: loss of {first} layer minus that of {last}",
            gains[TRANSFORMER],
            GAP,
        ),
        at_least(
            f"It helps the Transformer more than the LSTM: difference of the two gains to {last} layers",
            differences(gains[TRANSFORMER], gains[RECURRENT]),
            GAP,
        ),
        at_most(
            f"The Transformer bears {last} layers: loss minus that of its best shallower one",
            excess[TRANSFORMER],
            GAP,
        ),
        at_least(
            f"The LSTM does not bear {last} layers: loss minus that of its best shallower one",
            excess[RECURRENT],
            GAP,
        ),
    ]
