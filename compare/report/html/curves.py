"""Figures that only the HTML report has: learning curves, and bars with their spread."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from compare.analysis.table import Row
from compare.report.plots.costs import mean_curve
from compare.report.plots.lines import by_label, draw_line
from compare.report.plots.style import REFERENCE_COLOR, finish_figure, make_panels, series_color, tidy_axes

BAR_PANEL_INCHES, BAR_INCHES = 4.0, 0.26
"""Width of a panel of bars, and height of a bar with the gap around it."""


def learning_plot(rows: Sequence[Row]) -> Figure:
    """Plot validation loss and BLEU against updates; ``rows`` of ``efficiency.progress``."""
    models = by_label(rows)
    names = {"loss": "validation loss (nats per token)", "bleu": "validation BLEU"}
    if all(row["bleu"] is None for row in rows):
        del names["bleu"]  # of language models
    figure, panels = make_panels(len(names), legend_entries=len(models))
    for axes, (column, name) in zip(panels, names.items(), strict=True):
        for index, model_rows in enumerate(models.values()):
            draw_line(axes, mean_curve(model_rows, "updates", column), index)
        axes.set(xlabel="updates", ylabel=name, xlim=(0, None))
    for axes in panels[1:]:
        axes.set_ylim(bottom=0)
    return finish_figure(figure, list(models))


class Bar(NamedTuple):
    """Length of a bar, and the ends of the line over it."""

    value: float
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Bar | None":
        """Make a bar of the mean of ``values``, with their range; None if there are none."""
        return cls(fmean(values), min(values), max(values)) if values else None


def bar_plot(panels: Mapping[str, Mapping[str, Bar | None]]) -> Figure:
    """Draw one panel per quantity, one bar per model.

    Args:
        panels: bars by name of the quantity, then by model; the same models in each, None without a value.
    """
    models = list(next(iter(panels.values())))
    size = (BAR_PANEL_INCHES, 0.9 + BAR_INCHES * len(models))
    figure, all_axes = make_panels(len(panels), size=size)
    for axes, (name, values) in zip(all_axes, panels.items(), strict=True):
        _draw_bars(axes, [values[model] for model in models])
        axes.set_xlabel(name)
        axes.set_yticks(range(len(models)), models, parse_math=False)  # in each: a narrow page stacks them
        axes.set_ylim(len(models) - 0.5, -0.5)  # first model on top; a model without a bar keeps its row
    return figure


def _draw_bars(axes: Axes, bars: Sequence[Bar | None]) -> None:
    """Draw one bar per model; skip a model without a value."""
    for index, bar in enumerate(bars):
        if bar:
            axes.barh(index, bar.value, height=0.65, color=series_color(index))
            axes.hlines(index, bar.low, bar.high, colors=REFERENCE_COLOR, linewidth=3)
    if max(bar.high for bar in bars if bar) >= 1000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    tidy_axes(axes, grid="x")
