"""Drawing: style, panels of lines, one function per kind of figure, and files; all without a display."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

from compare.analysis.comparison import any_translates
from compare.analysis.cost import (
    COSTS,
    NO_BLEU,
    Crossing,
    Curve,
    find_crossing,
    format_cost,
    make_curves,
    name_leaders,
)
from compare.analysis.efficiency import SIZE, SPEED
from compare.analysis.similarity import NEAREST
from compare.attention.heatmap import plain_style, render_figure
from compare.models.styles import Style, series_style
from compare.results.formatting import Row, heading_of
from compare.results.store import refuse_writing
from data.files import write_atomically
from data.text import visible_lines

# Visual style of every figure: colours, markers, panel sizes, grid and legend.


REFERENCE_COLOR = "#888888"
"""Colour of marks that are not a series, such as predictions and ranges."""
REFERENCE_LINE: dict[str, Any] = {"color": REFERENCE_COLOR, "linestyle": "--", "linewidth": 1.2}
CAPTION_COLOR = "#444444"
PANEL_INCHES = (5.0, 3.9)
MIN_PANELS = 2
"""Smallest width of a figure in panels; legends and long labels need it."""
LEGEND_COLUMNS = 5
LEGEND_ROW_INCHES = 0.22
Styles = Mapping[str, Style]


def model_style(styles: Styles, label: str, index: int) -> Style:
    """Return the style of a model, by its index if the experiment does not have it."""
    return styles.get(label) or (Style(REFERENCE_COLOR) if label == NEAREST else series_style(index))


def line_style(style: Style) -> dict[str, Any]:
    """Return the properties of a line with markers."""
    return {**style._asdict(), "markersize": 5, "linewidth": 1.5}


def make_panels(
    count: int,
    *,
    legend_entries: int = 0,
    size: tuple[float, float] = PANEL_INCHES,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels side by side, with space below for a legend.

    ``size`` is that of one panel, in inches.
    """
    width, height = size
    legend_height = LEGEND_ROW_INCHES * (1 + -(-legend_entries // LEGEND_COLUMNS)) if legend_entries else 0
    figure = Figure(figsize=(width * max(count, MIN_PANELS), height + legend_height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def add_caption(figure: Figure, caption: str) -> None:
    """Write a line below a figure; ``draw`` makes space for it."""
    figure.text(0.5, 0, caption, ha="center", va="top", fontsize=9, color=CAPTION_COLOR, parse_math=False)


def tidy_axes(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Draw a light grid, and no frame at the top and on the right."""
    axes.grid(axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def finish_figure(figure: Figure, labels: Sequence[str], caption: str = "") -> Figure:
    """Tidy all panels and add a legend and a one-line caption below them.

    The lines of the series come first in the first panel. Labels are literal: a $ does not begin a formula.
    """
    for axes in figure.axes:
        tidy_axes(axes)
    lines = figure.axes[0].lines[: len(labels)]
    columns = min(len(labels), LEGEND_COLUMNS)
    legend_position: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False}
    legend = figure.legend(
        lines, labels, title=caption or None, title_fontproperties={"size": 9}, **legend_position
    )
    legend.get_title().set(color=CAPTION_COLOR, parse_math=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


# Lines of an analysis: one per model, in a band from its lowest to its highest seed.


SEVERAL_SEEDS = "Line: mean over seeds. Band: from the lowest to the highest seed."
ONE_RUN = "Each line is one run: the variation between seeds is not shown."


Points = Iterable[tuple[float, Sequence[float]]]
"""Points of one model's line: values over its seeds at each x; an x without values is skipped."""


def by_label(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by model, in the order of their first rows; ValueError without rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["label"], []).append(row)
    if not groups:
        raise ValueError("nothing to plot: the table has no rows")
    return groups


def draw_line(axes: Axes, points: Points, style: Style) -> None:
    """Draw one model's means over its seeds, and the band from lowest to highest where they differ."""
    filled = [(x, values) for x, values in points if values]
    x = [position for position, _ in filled]
    axes.plot(x, [fmean(values) for _, values in filled], **line_style(style))
    low, high = ([end(values) for _, values in filled] for end in (min, max))
    if low != high:
        axes.fill_between(x, low, high, color=style.color, alpha=0.15, linewidth=0)


@plain_style()
def draw_lines(
    rows: Sequence[Row],
    styles: Styles,
    columns: Mapping[str, str],
    points: Callable[[Sequence[Row], str], Points],
    caption: str = "",
) -> tuple[Figure, list[Axes]]:
    """Draw one panel per column with one line per model.

    ``columns`` has the label of the y axis; ``points`` makes a line from the rows of a model and a column.
    """
    models = by_label(rows)
    figure, panels = make_panels(len(columns), legend_entries=len(models))
    for axes, (column, name) in zip(panels, columns.items(), strict=True):
        for index, (label, model_rows) in enumerate(models.items()):
            draw_line(axes, points(model_rows, column), model_style(styles, label, index))
        axes.set_ylabel(name)
    several = any(len({row.get("seed") for row in model_rows}) > 1 for model_rows in models.values())
    return finish_figure(figure, list(models), caption or (SEVERAL_SEEDS if several else ONE_RUN)), panels


# Kinds of figures, each of the rows of an analysis.


SCORES = {"bleu": "BLEU"}
RATES = {"recall_percent": "recall (%)", "precision_percent": "precision (%)"}
CURVES = {"loss": "validation loss (nats per token)", "bleu": "validation BLEU"}
FRONTS: dict[str, tuple[str, str, Literal["steps-pre", "steps-post"]]] = {
    SPEED: ("sentences per second, beam search", "speed_front", "steps-pre"),
    SIZE: ("parameters", "size_front", "steps-post"),
}
"""Axis label, column that marks the front, and drawing style of the steps between models on the front."""
FRONT_CAPTION = (
    "Filled: on the Pareto front (dashed). Hollow: another model is better in one and as good in the other. "
    "Speeds whose bars overlap count as equal. Bars: lowest to highest seed or repeat."
)
EQUAL_RATIO = 1.02
"""Largest ratio of two values of a quantity that counts as made equal for all models."""
LOG_RATIO = 10
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""


def groups_plot(
    rows: Sequence[Row],
    styles: Styles,
    group: str,
    size: str,
    title: str,
    columns: Mapping[str, str] = SCORES,
) -> Figure:
    """Plot columns over groups of sentences or words, one panel each.

    ``group`` and ``size`` are columns with the name and the size of a group, ``title`` is that of the x axis.
    """
    sizes = {row[group]: row[size] for row in rows}

    def points(model_rows: Sequence[Row], column: str) -> Points:
        measured = [row for row in model_rows if row[column] is not None]
        return enumerate([row[column] for row in measured if row[group] == name] for name in sizes)

    figure, panels = draw_lines(rows, styles, columns, points)
    for axes in panels:
        axes.set_xticks(range(len(sizes)), [f"{name}\n({n:,})" for name, n in sizes.items()], fontsize=8)
        axes.set(xlabel=title, xlim=(-0.3, len(sizes) - 0.7), ylim=(0, None))
    return figure


def curves_plot(
    rows: Sequence[Row], styles: Styles, against: str, columns: Mapping[str, str] = CURVES
) -> Figure:
    """Plot validation figures against the cost of training; ``rows`` of ``cost.progress``.

    Raises:
        ValueError: there are no rows, one lacks that cost, or none has any of the columns.
    """
    drawn = {name: title for name, title in columns.items() if any(row[name] is not None for row in rows)}
    if rows and not drawn:
        raise ValueError(NO_BLEU)
    _ensure_cost(rows, against)

    def points(model_rows: Sequence[Row], column: str) -> Points:
        for curve in make_curves(model_rows, column, against).values():
            yield from zip(curve.costs, curve.scores.T.tolist(), strict=True)

    figure, panels = draw_lines(rows, styles, drawn, points)
    for axes, column in zip(panels, drawn, strict=True):
        axes.set(xlabel=COSTS[against], xlim=(0, None), ylim=(0, None) if column == "bleu" else (None, None))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


COST_INCHES, CROSSING_INCHES = (7.6, 4.4), 0.36
"""Size of the panel of ``cost_plot``, and height of each crossing below it."""
TITLE_LENGTH = 72
LABEL_GAP = 0.055
"""Smallest distance between labels at the ends of lines, as a share of the panel's height."""


@plain_style()
def cost_plot(rows: Sequence[Row], styles: Styles, against: str, quality: str = "bleu") -> Figure:
    """Plot quality against the cost of training, with the crossings of models and their intervals.

    ``rows`` are those of ``cost_points``; with one budget they are validations, drawn by ``curves_plot``.

    Raises:
        ValueError: there are no rows, one lacks that cost, or none has the quality.
    """
    if not rows or "outcome" not in rows[0]:
        return curves_plot(rows, styles, against, {quality: CURVES[quality]})
    _ensure_cost(rows, against)
    sign = 1 if quality == "bleu" else -1
    if not (curves := make_curves(rows, quality, against)):
        raise ValueError(NO_BLEU)
    rising = {label: replace(curve, scores=sign * curve.scores) for label, curve in curves.items()}
    best = {label: float(curve.means.max()) for label, curve in rising.items()}
    has_learned = quality != "bleu" or any_translates(best)
    pairs = dict.fromkeys((row["label"], other) for row in rows for other in row["against"])
    crossings = _crossings(rising, pairs) if has_learned else []
    width, height = COST_INCHES
    below = CROSSING_INCHES * len(crossings)
    figure = Figure(figsize=(width, height + below), layout="constrained")
    heights = [height, below] if crossings else [height]
    axes, *strip = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for index, (label, curve) in enumerate(curves.items()):
        points = zip(curve.costs, curve.scores.T.tolist(), strict=True)
        draw_line(axes, points, model_style(styles, label, index))
    outcome = f"BLEU, {rows[0]['outcome'].removeprefix('the ')}"
    axes.set(xscale="log", ylabel=outcome if quality == "bleu" else CURVES[quality])
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # crossings and labels do not move them
    tidy_axes(axes)
    _label_ends(axes, list(curves.values()), styles)
    for below_axes in strip:
        _draw_crossings(axes, below_axes, crossings, curves)
    bottom = [axes, *strip][-1]
    bottom.set_xlabel(COSTS[against])
    _set_cost_ticks(bottom, curves.values(), against)
    title = name_leaders(rising, quality, against) if has_learned else "No model translates yet"
    lines = textwrap.fill(title, TITLE_LENGTH, break_on_hyphens=False)
    axes.set_title(lines, loc="left", fontsize=12, fontweight="bold", parse_math=False)
    seeds = max(len(curve.scores) for curve in curves.values())
    marks = " Circles: crossings." if crossings else ""
    add_caption(figure, (SEVERAL_SEEDS if seeds > 1 else ONE_RUN) + marks)
    return figure


def _ensure_cost(rows: Sequence[Row], against: str) -> None:
    if missing := [row["label"] for row in rows if row[against] is None]:
        raise ValueError(f"{missing[0]}: {against} were not recorded in training; choose another axis")


def _crossings(
    curves: Mapping[str, Curve], pairs: Iterable[tuple[str, str]]
) -> list[tuple[str, str, Crossing]]:
    """Find the crossings of planned pairs of models, sorted by cost."""
    crossings = []
    for pair in pairs:
        with suppress(KeyError, ValueError):  # no curve, or no costs in common
            crossing = find_crossing(*(curves[label] for label in pair))
            if crossing.is_inside:
                crossings.append((*pair, crossing))
    return sorted(crossings, key=lambda named_crossing: named_crossing[-1].cost)


def _label_ends(axes: Axes, curves: Sequence[Curve], styles: Styles) -> None:
    """Write model names at the ends of the lines, without overlap."""
    low, high = axes.get_ylim()
    where: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "clip_on": False}
    height = -math.inf
    for index, curve in sorted(enumerate(curves), key=lambda indexed: float(indexed[1].means[-1])):
        height = max(float(curve.means[-1]), height + LABEL_GAP * (high - low))
        axes.plot([1.03], [height], **line_style(model_style(styles, curve.label, index)), **where)
        axes.text(1.05, height, curve.label, va="center", parse_math=False, **where)


def _draw_crossings(
    axes: Axes,
    strip: Axes,
    crossings: Sequence[tuple[str, str, Crossing]],
    curves: Mapping[str, Curve],
) -> None:
    """Circle the crossings, and draw their intervals in a strip below the panel."""
    (left, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    for row, (first, second, crossing) in enumerate(crossings):
        height = curves[first].score_at(crossing.cost)
        axes.plot([crossing.cost], [height], "o", markersize=11, markerfacecolor="none", color="black")
        axes.vlines(crossing.cost, bottom, height, colors=REFERENCE_COLOR, linestyles=":")
        text = f"{first} × {second}: {format_cost(crossing.cost)}"
        if crossing.interval is not None:
            low, high = (min(max(end, left), right) for end in crossing.interval)
            strip.hlines(row, low, high, colors=REFERENCE_COLOR, linewidth=4)
            text += f" (95% interval {crossing.describe_interval()})"
        strip.plot([crossing.cost], [row], "o", markersize=6, color="black")
        strip.text(0.0, row - 0.5, text, transform=strip.get_yaxis_transform(), va="center", fontsize=9)
    strip.set_ylim(len(crossings) - 0.5, -1)
    strip.set_yticks([])
    strip.spines[["top", "right", "left"]].set_visible(False)


def _set_cost_ticks(axes: Axes, curves: Iterable[Curve], against: str) -> None:
    if against == "updates":
        axes.set_xticks(sorted({update for curve in curves for update in curve.updates}))
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda cost, _: format_cost(cost).replace(".0e", "e")))


@plain_style()
def pareto_plot(rows: Sequence[Row], styles: Styles, against: str) -> Figure:
    """Plot test BLEU against speed or size; ``rows`` of ``compare.analysis.efficiency.pareto``.

    Raises:
        ValueError: there are no rows, or the quantity is the same for all models.
    """
    models, values = by_label(rows), [row[against] for row in rows]
    label, on_front, steps = FRONTS[against]
    if len(rows) > 1 and max(values) <= EQUAL_RATIO * min(values):
        raise ValueError(
            f"no figure against {label}: equal within 2%, {min(values):,.0f} to {max(values):,.0f}"
        )
    figure, (axes,) = make_panels(1, legend_entries=len(models))
    for index, row in enumerate(rows):
        style = line_style(model_style(styles, row["label"], index)) | {
            "linestyle": "",
            "markersize": 8,
        }
        style["markerfacecolor"] = None if row[on_front] else "white"
        color, x, bleu = style["color"], row[against], row["bleu"]
        axes.plot([x], [bleu], **style)
        axes.vlines(x, row["bleu_low"], row["bleu_high"], colors=color, zorder=1)
        if f"{against}_low" in row:
            axes.hlines(bleu, row[f"{against}_low"], row[f"{against}_high"], colors=color, zorder=1)
    front = sorted((row[against], row["bleu"]) for row in rows if row[on_front])
    axes.plot(*zip(*front, strict=True), **REFERENCE_LINE, drawstyle=steps, zorder=0)
    axes.set(xlabel=label, ylabel="test BLEU")
    if max(values) >= LOG_RATIO * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return finish_figure(figure, list(models), FRONT_CAPTION)


def tuning_plot(rows: Sequence[Row], styles: Styles) -> Figure:
    """Plot the expected best score against the number of trials; ``rows`` of ``tuning_curve``."""
    figure, panels = draw_lines(
        rows,
        styles,
        {"expected_bleu": "expected best validation BLEU"},
        lambda model_rows, column: ((row["trials"], [row[column]]) for row in model_rows),
        "Expected validation BLEU of the best of so many random trials (Tang et al. 2020).",
    )
    panels[0].set(xlabel="trials", ylim=(0, None))
    return figure


# Bars, one panel per quantity and one bar per model.


BAR_PANEL_INCHES, BAR_INCHES = 4.0, 0.26


class Bar(NamedTuple):
    """Length of a bar, and the ends of the line over it."""

    value: float
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Bar | None":
        """Make a bar of the mean of ``values``, with their range; None if there are none."""
        return cls(fmean(values), min(values), max(values)) if values else None


@plain_style()
def bar_plot(panels: Mapping[str, Mapping[str, Bar | None]], styles: Styles, caption: str) -> Figure:
    """Draw one panel per quantity, one bar per model.

    ``panels`` has the bars by quantity, then by model: the same models everywhere, None without a value.
    """
    models = list(next(iter(panels.values())))
    size = (BAR_PANEL_INCHES, 0.9 + BAR_INCHES * len(models))
    figure, all_axes = make_panels(len(panels), size=size)
    for axes, (name, values) in zip(all_axes, panels.items(), strict=True):
        bars = [values[model] for model in models]
        for index, (model, bar) in enumerate(zip(models, bars, strict=True)):
            if bar:
                color = model_style(styles, model, index).color
                axes.barh(index, bar.value, height=0.65, color=color)
                axes.hlines(index, bar.low, bar.high, colors=REFERENCE_COLOR, linewidth=3)
        if max(bar.high for bar in bars if bar) >= 1000:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        tidy_axes(axes, grid="x")
        axes.set_xlabel(name)
        axes.set_yticks(range(len(models)), models, parse_math=False)  # in each: a narrow page stacks them
        axes.set_ylim(len(models) - 0.5, -0.5)  # first model on top; a model without a bar keeps its row
    add_caption(figure, caption)
    return figure


def quality_bars(rows: Sequence[Row], styles: Styles) -> Figure:
    """Draw the minutes to levels of BLEU from rows of ``time_to_quality``; ValueError if none is reached."""
    panels: dict[str, dict[str, Bar | None]] = {}
    for name in (name for name in rows[0] if name.startswith("minutes")):
        minutes = {row["label"]: [value for value in [row[name]] if value is not None] for row in rows}
        panels[f"{heading_of(name)} BLEU"] = {label: Bar.over(values) for label, values in minutes.items()}
    if not any(bar for bars in panels.values() for bar in bars.values()):
        raise ValueError("no model has reached a level of BLEU")
    caption = (
        "Training time without validation until the mean over seeds reaches the level. No bar: not reached."
    )
    return bar_plot(panels, styles, caption)


# Files of figures.


FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}
"""Options of each file format; dates are left out, so that equal figures give equal bytes."""


def plots_folder(folder: Path, out: str | Path | None) -> Path:
    """Return ``out``, or by default plots in ``folder``.

    Raises:
        ValueError: ``out`` is None, but ``folder`` is published or read-only.
    """
    if out is not None:
        return Path(out)
    refuse_writing(folder, "name another folder for its plots with --out")
    return folder / "plots"


def draw(figure: Figure, form: str) -> bytes:
    """Return the content of an image file in a format of ``FORMATS``; equal figures give equal bytes.

    The text of an SVG file remains text: small, searchable, in the reader's font.
    """
    with plain_style(), mpl.rc_context({"svg.hashsalt": "attnbench", "svg.fonttype": "none"}):
        content = render_figure(figure, format=form, bbox_inches="tight", **FORMATS[form])
    # Control characters, which labels may hold, would make the XML invalid.
    return visible_lines(content.decode()).encode() if form == "svg" else content


def save_figure(figure: Figure, path: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``path``.png, .svg or .pdf atomically, and return the paths; ``path`` has no suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in formats:
        target = path.with_name(f"{path.name}.{suffix}")  # a label may hold a dot
        write_atomically(target, draw(figure, suffix))
        written.append(target)
    return written
