"""Results of studies by their descriptions: captions of tables, claims, and panels of lines."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

from compare.attention.heatmap import plain_style
from compare.models.styles import COLORS, OTHER, Style, series_style, style_of
from compare.report.drawing import REFERENCE_LINE, add_caption, line_style, make_panels, tidy_axes
from compare.results.table import Row, Table
from compare.studies.study import Measured, Settings, StudyResult, describe, judge

MAX_MARKED_POINTS = 30
"""A line of more points has no markers."""
FEW_DECADES = 1000
"""Ratio of the ends of a logarithmic axis below which 2 and 5 have labels, too."""
MAX_TICK_CHARACTERS = 90
"""Labels of an x axis that are longer together are turned, and small."""


def column(rows: Iterable[Row], name: str, **where: Any) -> list[Any]:
    """Return the values of a column, in the rows whose other columns have the values ``where``."""
    return [row[name] for row in rows if all(row[key] == value for key, value in where.items())]


def exponent(rows: Sequence[Row], x: str, y: str) -> float:
    """Fit the power law y = a x^b to two columns by least squares on the logarithms; return b."""
    slope, _ = np.polyfit(np.log(column(rows, x)), np.log(column(rows, y)), 1)
    return float(slope)


def conclude(
    settings: Settings,
    tables: Mapping[str, Sequence[Row]],
    series: Mapping[str, Measured | Mapping[str, Measured]],
    **words: Any,
) -> StudyResult:
    """Combine what a study has measured with its description.

    A table without a caption in the description is only drawn. For ``series`` and ``words`` see ``judge``.
    """
    description = describe(settings.name)
    words = description["words"] | words
    captions = {name: caption.format(**words) for name, caption in description["tables"].items()}
    return StudyResult(
        method=description["method"].format(**words),
        tables={name: Table(caption, tables[name]) for name, caption in captions.items()},
        claims=judge(settings.name, series, **words),
        figure=draw_panels(description, tables, words),
    )


@plain_style()
def draw_panels(
    description: Mapping[str, Any], tables: Mapping[str, Sequence[Row]], words: Mapping[str, Any]
) -> Figure:
    """Draw the panels of a description side by side, each with a legend, above a caption of one line.

    A line has one style in all panels, by its name in the description's ``labels``, which may be shorter.
    """
    panels = description["panels"].values()
    figure, drawn = make_panels(len(panels))
    add_caption(figure, description["caption"].format(**words))
    names = description.get("labels", {})
    lines = [
        {names.get(name, name): line for name, line in lines_of(panel, tables[panel["table"]], words).items()}
        for panel in panels
    ]
    predicted = {names.get(label, label) for panel in panels for label in panel.get("predicted", ())}
    styles = line_styles([label for label in dict.fromkeys(chain(*lines)) if label not in predicted])
    for axes, panel, points in zip(drawn, panels, lines, strict=True):
        dashes = iter(("--", ":", "-."))
        for label, (x, y) in points.items():
            if label in predicted:  # above the measured lines, which would hide a prediction that comes true
                axes.plot(x, y, **REFERENCE_LINE | {"linestyle": next(dashes)}, label=label, zorder=3)
                continue
            style = line_style(styles[label])
            style |= {"marker": ""} if len(x) > MAX_MARKED_POINTS else {}
            axes.plot(x, y, **style | ({} if panel.get("joined", True) else {"linestyle": ""}), label=label)
        if (vertical := panel.get("vertical")) is not None:
            axes.plot([vertical] * 2, [0, 1], **REFERENCE_LINE, label=f"longest in training: {vertical}")
        set_scales(axes, panel)
        ticks = column(tables[panel["table"]], panel["over"])
        if isinstance(ticks[0], str):
            many = sum(map(len, ticks)) > MAX_TICK_CHARACTERS / len(panels)
            style = {"rotation": 90, "fontsize": 6} if many else {}
            axes.set_xticks(range(len(ticks)), ticks, **style)
        axes.set(xlabel=panel["x"], ylabel=panel["y"])
        axes.set_title(panel["title"].format(**words), fontsize=11)
        tidy_axes(axes)
        axes.legend(fontsize=8, frameon=False)
    return figure


def lines_of(
    panel: Mapping[str, Any], rows: Sequence[Row], words: Mapping[str, Any]
) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    """Return x and y of the lines of a panel by label.

    A panel draws columns of its ``table`` over the column ``over``: ``lines`` or all others, those in
    ``predicted`` dashed, where a word stands for a constant; or the column ``values``, with one line per
    value of the column ``by``.
    """
    over = panel["over"]
    if by := panel.get("by"):
        labels = dict.fromkeys(column(rows, by))
        return {
            label: (column(rows, over, **{by: label}), column(rows, panel["values"], **{by: label}))
            for label in labels
        }
    x = column(rows, over)
    positions = range(len(x)) if isinstance(x[0], str) else x
    numbers = [name for name, value in rows[0].items() if name != over and not isinstance(value, str)]
    names = [*panel.get("lines", numbers), *panel.get("predicted", ())]
    return {
        name: (positions, [row.get(name, words.get(name, math.nan)) for row in rows])
        for name in dict.fromkeys(names)
    }


def set_scales(axes: Axes, panel: Mapping[str, Any]) -> None:
    """Set the scales of both axes, and the range of y."""
    log = panel.get("log", "")
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if "y" in log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < FEW_DECADES * low else (1,)))
        axes.yaxis.set_major_formatter(EngFormatter(panel["unit"]) if "unit" in panel else "{x:g}")
        axes.yaxis.set_minor_formatter("")
    if "limits" in panel:
        axes.set_ylim(*panel["limits"])


def line_styles(labels: Sequence[str]) -> dict[str, Style]:
    """Return the styles of lines: those of the families whose names begin the labels, if any does."""
    names = [
        max((name for name in COLORS if label.startswith(name)), key=len, default=OTHER) for label in labels
    ]
    if set(names) == {OTHER}:
        return {label: series_style(index) for index, label in enumerate(labels)}
    return {label: style_of(names[i], names[:i].count(names[i])) for i, label in enumerate(labels)}
