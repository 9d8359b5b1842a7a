"""Visual style of every figure: colours, markers, panel sizes, grid and legend."""

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that colour-blind readers can tell apart (Okabe and Ito 2008)."""
MARKERS = "osD^vPX*"
"""Markers; their number has no common divisor with that of the colours, so 56 combinations differ."""
REFERENCE_COLOR = "#888888"
"""Colour of predictions, ranges and other marks that are not a series."""
REFERENCE_LINE: dict[str, Any] = {"color": REFERENCE_COLOR, "linestyle": "--", "linewidth": 1.2}
PANEL_INCHES = (5.0, 3.9)
MIN_PANELS = 2
"""A figure is at least as wide as so many panels, so that a legend and long labels fit."""
LEGEND_COLUMNS = 5
LEGEND_ROW_INCHES = 0.22


def series_color(index: int) -> str:
    """Return the colour of the series with that index."""
    return PALETTE[index % len(PALETTE)]


def series_style(index: int) -> dict[str, Any]:
    """Return the line properties of the series with that index; the first 56 all differ."""
    marker = MARKERS[index % len(MARKERS)]
    return {"color": series_color(index), "marker": marker, "markersize": 5, "linewidth": 1.5}


def make_panels(
    count: int,
    *,
    legend_entries: int = 0,
    size: tuple[float, float] = PANEL_INCHES,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels side by side.

    Args:
        count: number of panels.
        legend_entries: names in the legend below the panels; the figure grows by its height.
        size: width and height of one panel in inches.
    """
    width, height = size
    legend_height = LEGEND_ROW_INCHES * -(-legend_entries // LEGEND_COLUMNS)
    figure = Figure(figsize=(width * max(count, MIN_PANELS), height + legend_height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def tidy_axes(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Draw a light grid, and no frame at the top and on the right."""
    axes.grid(axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def finish_figure(figure: Figure, labels: Sequence[str]) -> Figure:
    """Tidy all panels and add a legend below them.

    Args:
        figure: its first panel has one line per label first, in the same order.
        labels: names of the series, shown literally: a $ does not begin a formula.
    """
    for axes in figure.axes:
        tidy_axes(axes)
    lines = figure.axes[0].lines[: len(labels)]
    columns = min(len(labels), LEGEND_COLUMNS)
    legend = figure.legend(lines, labels, loc="outside lower center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure
