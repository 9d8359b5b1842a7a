"""One look for all studies' figures: panels of labelled lines."""

from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from compare.report.plots.plots import MARKERS, PALETTE

Points = tuple[Sequence[float], Sequence[float]]
"""The x and the y of a line."""
PANEL_INCHES = (4.6, 3.8)
MARKED = 30
"""Points of a line up to which each has its marker."""


def make_figure(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure of ``panels`` plots side by side."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * panels, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


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
    """Draw each of ``lines`` with markers under its name, and what was ``predicted`` as dashes."""
    for number, (label, points) in enumerate(lines.items()):
        color, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        marker = marker if len(points[0]) <= MARKED else ""
        axes.plot(*points, color=color, marker=marker, markersize=4, linewidth=1.5, label=label)
    for label, points in (predicted or {}).items():
        axes.plot(*points, color="#888888", linestyle="--", linewidth=1.2, label=label, zorder=1)
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
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
