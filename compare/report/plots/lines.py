"""Lines of an analysis: one per model, in a band from its lowest to its highest seed."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes

from compare.analysis.table import Row
from compare.report.plots.style import series_color, series_style


class Points(NamedTuple):
    """Points of one model's line: mean and range over its seeds at each x."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def by_label(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by model, in the order in which the models first appear.

    Raises:
        ValueError: there are no rows.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["label"], []).append(row)
    if not groups:
        raise ValueError("nothing to plot: the table has no rows")
    return groups


def points_of(groups: Iterable[tuple[float, Sequence[float]]]) -> Points:
    """Compute a line's points from pairs of x and values over the seeds; skip an x without values."""
    filled = [(x, values) for x, values in groups if values]
    return Points(
        x=[x for x, _ in filled],
        mean=[fmean(values) for _, values in filled],
        low=[min(values) for _, values in filled],
        high=[max(values) for _, values in filled],
    )


def draw_line(axes: Axes, points: Points, index: int) -> None:
    """Draw one model's line, and the band of its seeds where they differ."""
    axes.plot(points.x, points.mean, **series_style(index))
    if points.low != points.high:
        axes.fill_between(
            points.x, points.low, points.high, color=series_color(index), alpha=0.15, linewidth=0
        )
