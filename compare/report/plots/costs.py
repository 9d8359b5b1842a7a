"""Quality against what it costs: in training, and in the model that comes of it."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from compare.analysis.table import Row
from compare.report.plots.lines import Points, by_label, draw_line, finish, make_panels, points_of, style_axes

Cost = Literal["seconds", "updates", "tokens", "flops", "joules"]
SPENT: dict[Cost, str] = {
    "seconds": "seconds of training",
    "updates": "updates",
    "tokens": "tokens of source and target",
    "flops": "floating-point operations of training",
    "joules": "joules of training",
}
"""What the axis says of each cost."""
Rival = Literal["beam_sentences_per_s", "params"]
FRONTS: dict[Rival, tuple[str, str, str]] = {
    "beam_sentences_per_s": ("sentences a second, beam search", "speed_front", "steps-pre"),
    "params": ("parameters", "size_front", "steps-post"),
}
"""What the axis says, the column that tells the front, and how it goes from one of its models to the next:
what a model reaches is also had by whoever asks for less speed, or has room for more parameters."""
WIDE = 10
"""Where the largest value is so many times the smallest, the axis is logarithmic."""


def progress_plot(rows: Sequence[Row], against: Cost) -> Figure:
    """Validation BLEU against what training had spent; ``rows`` of ``efficiency.progress``.

    Raises:
        ValueError: no rows, or one without that cost.
    """
    models = by_label(rows)
    if lacking := [row["label"] for row in rows if row[against] is None]:
        raise ValueError(f"{lacking[0]}: {against} were not read in training; choose another axis")
    figure, (axes,) = make_panels(1, len(models))
    for number, own in enumerate(models.values()):
        draw_line(axes, mean_curve(own, against, "bleu"), number)
    axes.set(xlabel=SPENT[against], ylabel="validation BLEU", xlim=(0, None), ylim=(0, None))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return finish(figure, list(models))


def pareto_plot(rows: Sequence[Row], against: Rival) -> Figure:
    """Test BLEU against speed or size; ``rows`` of ``compare.analysis.quality.efficiency.pareto``.

    A model on the front has a full marker, another a hollow one; its line spans its seeds.
    """
    models = by_label(rows)
    name, column, _ = FRONTS[against]
    figure, (axes,) = make_panels(1, len(models))
    for number, row in enumerate(rows):
        style = style_axes(number) | {"markersize": 8, "markerfacecolor": None if row[column] else "white"}
        axes.plot([row[against]], [row["bleu"]], linestyle="", **style)
        axes.vlines(row[against], row["bleu_low"], row["bleu_high"], colors=style["color"], zorder=1)
    _draw_front(axes, rows, against)
    axes.set(xlabel=name, ylabel="test BLEU")
    _scale([row[against] for row in rows], axes)
    return finish(figure, list(models))


def mean_curve(rows: Sequence[Row], against: Cost, column: str) -> Points:
    """One model's ``column`` over its seeds, at the updates that all of them came to."""
    seeds = len({row["seed"] for row in rows})
    known = (row for row in rows if row[column] is not None)
    ordered = sorted(known, key=lambda row: row["updates"])
    groups = (list(group) for _, group in groupby(ordered, key=lambda row: row["updates"]))
    whole = (group for group in groups if len(group) == seeds)
    return points_of(
        (fmean(row[against] for row in group), [row[column] for row in group]) for group in whole
    )


def _draw_front(axes: Axes, rows: Sequence[Row], against: Rival) -> None:
    """Join the models on the front by steps."""
    _, column, steps = FRONTS[against]
    front = sorted((row[against], row["bleu"]) for row in rows if row[column])
    axes.plot(
        *zip(*front, strict=True), color="#888888", linestyle="--", linewidth=1.2, drawstyle=steps, zorder=0
    )


def _scale(values: Sequence[float], axes: Axes) -> None:
    """Choose the scale of the x axis, and ticks that can be read."""
    if max(values) >= WIDE * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
