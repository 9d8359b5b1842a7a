"""Panels of labelled lines, as all studies draw them."""

from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter, MaxNLocator

from compare.report.plots.style import REFERENCE_LINE, series_style, tidy_axes

Points = tuple[Sequence[float], Sequence[float]]
"""x and y of a line."""
MAX_MARKED_POINTS = 30
"""A line of more points has no markers."""


def draw_lines(
    axes: Axes,
    lines: Mapping[str, Points],
    *,
    title: str,
    x: str,
    y: str,
    log: Literal["", "x", "y", "xy"] = "",
    predicted: Mapping[str, Points] | None = None,
) -> None:
    """Draw lines and a legend.

    Args:
        axes: where to draw.
        lines: measured points by label.
        title: of the panel.
        x: label of the x axis.
        y: label of the y axis.
        log: which axes are logarithmic.
        predicted: predicted points by label, drawn dashed.
    """
    for index, (label, points) in enumerate(lines.items()):
        style = series_style(index)
        if len(points[0]) > MAX_MARKED_POINTS:
            style["marker"] = ""
        axes.plot(*points, **style, label=label)
    for label, points in (predicted or {}).items():
        axes.plot(*points, **REFERENCE_LINE, label=label, zorder=1)
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if "y" in log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
        axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    tidy_axes(axes)
    axes.legend(fontsize=8, frameon=False)
