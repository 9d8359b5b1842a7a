"""Quality against cost: of training, and of the trained model."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from compare.analysis.quality.efficiency import NO_BLEU
from compare.analysis.table import Row
from compare.report.plots.lines import Points, by_label, draw_line, points_of
from compare.report.plots.style import REFERENCE_LINE, finish_figure, make_panels, series_style

Cost = Literal["seconds", "updates", "tokens", "flops", "joules"]
SPENT: dict[Cost, str] = {
    "seconds": "seconds of training",
    "updates": "updates",
    "tokens": "tokens of source and target",
    "flops": "floating-point operations of training",
    "joules": "joules of training",
}
"""Axis label of each cost."""
Rival = Literal["beam_sentences_per_s", "params"]
FRONTS: dict[Rival, tuple[str, str, str]] = {
    "beam_sentences_per_s": ("sentences per second, beam search", "speed_front", "steps-pre"),
    "params": ("parameters", "size_front", "steps-post"),
}
"""Axis label, column that marks the front, and drawing style of the steps between models on the front.

A model's quality is also available to whoever needs less speed, or can afford more parameters.
"""
LOG_RATIO = 10
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""


def progress_plot(rows: Sequence[Row], against: Cost) -> Figure:
    """Plot validation BLEU against the cost of training so far; ``rows`` of ``efficiency.progress``.

    Raises:
        ValueError: there are no rows, or one lacks that cost or its BLEU.
    """
    models = by_label(rows)
    if all(row["bleu"] is None for row in rows):
        raise ValueError(NO_BLEU)
    if missing := [row["label"] for row in rows if row[against] is None]:
        raise ValueError(f"{missing[0]}: {against} were not recorded in training; choose another axis")
    figure, (axes,) = make_panels(1, legend_entries=len(models))
    for index, model_rows in enumerate(models.values()):
        draw_line(axes, mean_curve(model_rows, against, "bleu"), index)
    axes.set(xlabel=SPENT[against], ylabel="validation BLEU", xlim=(0, None), ylim=(0, None))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return finish_figure(figure, list(models))


def pareto_plot(rows: Sequence[Row], against: Rival) -> Figure:
    """Plot test BLEU against speed or size; ``rows`` of ``compare.analysis.quality.efficiency.pareto``.

    Models on the Pareto front have filled markers, the others hollow ones; vertical lines span the seeds,
    horizontal ones the timed repeats.
    """
    models = by_label(rows)
    label, on_front, _ = FRONTS[against]
    figure, (axes,) = make_panels(1, legend_entries=len(models))
    for index, row in enumerate(rows):
        style = series_style(index) | {"markersize": 8, "markerfacecolor": None if row[on_front] else "white"}
        axes.plot([row[against]], [row["bleu"]], linestyle="", **style)
        axes.vlines(row[against], row["bleu_low"], row["bleu_high"], colors=style["color"], zorder=1)
        if f"{against}_low" in row:
            axes.hlines(
                row["bleu"], row[f"{against}_low"], row[f"{against}_high"], colors=style["color"], zorder=1
            )
    _draw_front(axes, rows, against)
    axes.set(xlabel=label, ylabel="test BLEU")
    _set_scale([row[against] for row in rows], axes)
    return finish_figure(figure, list(models))


def mean_curve(rows: Sequence[Row], against: Cost, column: str) -> Points:
    """Compute one model's ``column`` over its seeds, at the updates that all seeds reached."""
    seeds = len({row["seed"] for row in rows})
    measured = (row for row in rows if row[column] is not None)
    ordered = sorted(measured, key=lambda row: row["updates"])
    groups = (list(group) for _, group in groupby(ordered, key=lambda row: row["updates"]))
    complete = (group for group in groups if len(group) == seeds)
    return points_of(
        (fmean(row[against] for row in group), [row[column] for row in group]) for group in complete
    )


def _draw_front(axes: Axes, rows: Sequence[Row], against: Rival) -> None:
    """Join the models on the front by steps."""
    _, on_front, steps = FRONTS[against]
    front = sorted((row[against], row["bleu"]) for row in rows if row[on_front])
    axes.plot(*zip(*front, strict=True), **REFERENCE_LINE, drawstyle=steps, zorder=0)


def _set_scale(values: Sequence[float], axes: Axes) -> None:
    """Set a linear or logarithmic x axis with readable ticks."""
    if max(values) >= LOG_RATIO * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
