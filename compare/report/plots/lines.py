"""One look for all figures of an analysis: a line a model, in a band from its lowest seed to its highest."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compare.analysis.table import Row
from compare.report.plots.plots import MARKERS, PALETTE

PANEL_INCHES = (5.0, 3.9)
LEGEND_COLUMNS = 5
LEGEND_ROW_INCHES = 0.22


class Points(NamedTuple):
    """The points of one model, each over its seeds."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def by_label(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each model, in the order of their first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["label"], []).append(row)
    if not found:
        raise ValueError("nothing to plot: the table has no rows")
    return found


def points_of(groups: Iterable[tuple[float, Sequence[float]]]) -> Points:
    """The points of a line from each x and its values over the seeds; an x without any is left out."""
    known = [(x, values) for x, values in groups if values]
    return Points(
        x=[x for x, _ in known],
        mean=[fmean(values) for _, values in known],
        low=[min(values) for _, values in known],
        high=[max(values) for _, values in known],
    )


def style_axes(number: int) -> dict[str, Any]:
    """Colour and marker of the model of that number; the first 56 all differ."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5,
    }


def make_panels(count: int, models: int) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` plots side by side, with room below for a legend of ``models`` names."""
    width, height = PANEL_INCHES
    legend = LEGEND_ROW_INCHES * -(-models // LEGEND_COLUMNS)
    figure = Figure(figsize=(width * max(count, 2), height + legend), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def draw_line(axes: Axes, points: Points, number: int) -> None:
    """Draw one model's line, and the band of its seeds where they differ."""
    axes.plot(points.x, points.mean, linewidth=1.5, **style_axes(number))
    if points.low != points.high:
        color = PALETTE[number % len(PALETTE)]
        axes.fill_between(points.x, points.low, points.high, color=color, alpha=0.15, linewidth=0)


def finish(figure: Figure, labels: Sequence[str]) -> Figure:
    """Take off what distracts, and name the models below; the first panel has a line of each, in order."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    lines = figure.axes[0].lines[: len(labels)]
    legend = figure.legend(lines, labels, loc="outside lower center", ncols=min(len(labels), LEGEND_COLUMNS))
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure
