"""Figures that only the report draws: learning curves, and bars with the range of the seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from compare.analysis.table import Row
from compare.report.plots.costs import mean_curve
from compare.report.plots.lines import by_label, draw_line, finish, make_panels
from compare.report.plots.plots import PALETTE

BAR_INCHES = 0.26


def learning_plot(rows: Sequence[Row]) -> Figure:
    """Validation loss and BLEU against updates; ``rows`` of ``efficiency.progress``."""
    models = by_label(rows)
    figure, panels = make_panels(2, len(models))
    names = {"loss": "validation loss (nats a token)", "bleu": "validation BLEU"}
    for axes, (column, name) in zip(panels, names.items(), strict=True):
        for number, own in enumerate(models.values()):
            draw_line(axes, mean_curve(own, "updates", column), number)
        axes.set(xlabel="updates", ylabel=name, xlim=(0, None))
    panels[1].set_ylim(bottom=0)
    return finish(figure, list(models))


def bar_plot(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """A panel of bars a figure, a bar a model: the mean over its seeds, and a line from lowest to highest.

    Args:
        panels: values over seeds, by name of the figure, then by model; the same models in each.
    """
    models = list(next(iter(panels.values())))
    height = 0.9 + BAR_INCHES * len(models)
    figure = Figure(figsize=(4.0 * max(len(panels), 2), height), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (name, values) in zip(grid, panels.items(), strict=True):
        _draw_bars(axes, [values[model] for model in models])
        axes.set_xlabel(name)
    grid[0].set_yticks(range(len(models)), models, parse_math=False)
    grid[0].set_ylim(len(models) - 0.5, -0.5)  # the first on top; a model without a bar has room too
    return figure


def _draw_bars(axes: Axes, values: Sequence[Sequence[float]]) -> None:
    for place, own in enumerate(values):
        if own:
            axes.barh(place, fmean(own), height=0.65, color=PALETTE[place % len(PALETTE)])
            axes.hlines(place, min(own), max(own), colors="#888888", linewidth=3)
    axes.grid(axis="x", alpha=0.3)
    if max(max(own) for own in values if own) >= 1000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.spines[["top", "right"]].set_visible(False)
