"""Depth of Transformers and of recurrent models with attention, trained.

Wu et al. 2016 (section 3.1) report that simply stacked LSTMs work well up to 4 layers, barely with 6 and very
poorly beyond 8, which residual paths mend; Wang et al. 2019 train pre-norm Transformers of 30 encoder layers.
"""

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.figure import Figure

from compare.analysis.tables import Row, Table
from compare.report.plots import make_panels
from compare.studies.designs import Design, Trained, differences, make_plan, tables, train_designs
from compare.studies.figures import draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import SHORT_WORDS, Model, build_deep_transformer, short_task
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.layers import STANDARD

GAP = 0.1
"""Nats per token by which a loss must exceed another; the perplexity is then 11% higher."""
FAMILIES = ("Transformer", "LSTM with attention")
METHOD = """\
Pre-norm Transformers (d = {d}, 4 heads) and LSTMs with additive attention (states of {hidden}, the encoder in
both directions, residual paths from the third layer on) of {depths} layers per side, without dropout,
translate the embedded corpus ({pairs:,} pairs of
at most {words} source words): {plan}, after {warmup} updates of warm-up. A layer of
an encoder and one of a decoder have {layer_sizes} weights. All depths see the same batches. Measured: the
loss per token on {valid:,} new pairs. Each claim is tested for every seed. The rule was fixed before: a loss
is lower if it is so by {gap} nats. Hold means with all seeds; undecided: with some."""


def run(settings: Settings) -> StudyResult:
    """Train both families at every depth."""
    depths = (1, 2) if settings.quick else (1, 2, 4, 8)
    d, hidden = (8, 8) if settings.quick else (64, 88)
    warmup, plan = 1 if settings.quick else 100, make_plan(settings, updates=600)
    task = short_task(settings)
    designs: dict[str, Design] = {}
    for depth in depths:
        builds: tuple[Callable[[int, int], Model], ...] = (
            partial(build_deep_transformer, depth, d, "pre", STANDARD),
            partial(build_recurrent, depth, hidden),
        )
        for family, build in zip(FAMILIES, builds, strict=True):
            designs[name(family, depth)] = Design(build=build, warmup_updates=warmup)
    trained = train_designs("depth", designs, task, plan)
    weights = {label: count_weights(design.build(*task.sizes)) for label, design in designs.items()}
    layer_sizes = " and ".join(
        f"{weights[name(family, 2)] - weights[name(family, 1)]:,} ({family})" for family in FAMILIES
    )
    method = METHOD.format(
        d=d,
        hidden=hidden,
        depths=", ".join(map(str, depths)),
        pairs=len(task.train),
        words=SHORT_WORDS,
        plan=plan.text,
        warmup=warmup,
        layer_sizes=layer_sizes,
        valid=len(task.valid),
        gap=GAP,
    )
    by_depth: list[Row] = [
        {
            "depth": depth,
            **{family: trained[name(family, depth)].mean_curve[-1] for family in FAMILIES},
            **{f"weights of {family}": weights[name(family, depth)] for family in FAMILIES},
        }
        for depth in depths
    ]
    losses = Table("Mean final validation loss (nats per target token) and weights.", by_depth)
    return StudyResult(
        method=method,
        tables={"depths": losses, **tables(trained)},
        claims=judge(trained, depths),
        figure=plot(by_depth, depths),
    )


def name(family: str, depth: int) -> str:
    """Name a design."""
    return f"{family}, {depth} layer{'s' * (depth > 1)}"


def build_recurrent(depth: int, hidden: int, src_vocabulary: int, tgt_vocabulary: int) -> Seq2Seq:
    """Build a fresh LSTM with attention of ``depth`` layers per side, without dropout."""
    config = Seq2SeqConfig(
        attention=AttentionConfig(score="additive"),
        embedding_size=hidden,
        hidden_size=hidden,
        num_layers=depth,
        dropout=0.0,
        tie="output",
    )
    return Seq2Seq(config, src_vocabulary, tgt_vocabulary)


def count_weights(model: Model) -> int:
    """Count the trained weights."""
    return sum(weights.numel() for weights in model.parameters())


def plot(by_depth: list[Row], depths: Sequence[int]) -> Figure:
    """Plot the mean final loss by depth."""
    figure, (axes,) = make_panels(1)
    points = {family: (depths, [row[family] for row in by_depth]) for family in FAMILIES}
    draw_lines(
        axes,
        points,
        title="Mean over seeds",
        x="layers per side",
        y="validation loss (nats per token)",
        log="x",
    )
    return figure


def judge(trained: dict[str, Trained], depths: Sequence[int]) -> list[Claim]:
    """Compare the claims with the losses."""
    first, *_, last = depths
    gains, excess = {}, {}
    for family in FAMILIES:
        finals = {depth: trained[name(family, depth)].final for depth in depths}
        gains[family] = differences(finals[first], finals[last])
        shallower = [min(losses) for losses in zip(*(finals[depth] for depth in depths[:-1]), strict=True)]
        excess[family] = differences(finals[last], shallower)
    transformer, recurrent = FAMILIES
    return [
        at_least(
            f"Depth helps the Transformer: loss of {first} layer minus that of {last}",
            gains[transformer],
            GAP,
        ),
        at_least(
            f"It helps the Transformer more than the LSTM: difference of the two gains to {last} layers",
            differences(gains[transformer], gains[recurrent]),
            GAP,
        ),
        at_most(
            f"The Transformer bears {last} layers: loss minus that of its best shallower one",
            excess[transformer],
            GAP,
        ),
        at_least(
            f"The LSTM does not bear {last} layers: loss minus that of its best shallower one",
            excess[recurrent],
            GAP,
        ),
    ]
