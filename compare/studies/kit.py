"""Tools of the studies: rows of tables, results by their descriptions, panels of lines, counts and errors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compare.models.styles import COLORS, OTHER, Style, series_style, style_of
from compare.report.drawing import REFERENCE_LINE, add_caption, line_style, make_panels, tidy_axes
from compare.results.table import Row, Table
from compare.studies.study import COMMON, Measured, StudyResult, describe, judge

# Rows of tables.


def column(rows: Iterable[Row], name: str, **where: Any) -> list[Any]:
    """Return the values of a column, in the rows whose other columns have the values ``where``."""
    return [row[name] for row in rows if all(row[key] == value for key, value in where.items())]


def differences(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """Subtract the numbers of each seed: ``left`` - ``right``."""
    return [a - b for a, b in zip(left, right, strict=True)]


def mean(values: Sequence[float]) -> float:
    """Return the mean over seeds, which is infinite if the training of one has diverged."""
    return sum(values) / len(values)


def exponent(rows: Sequence[Row], x: str, y: str) -> float:
    """Fit the power law y = a x^b to two columns by least squares on the logarithms; return b."""
    slope, _ = np.polyfit(np.log(column(rows, x)), np.log(column(rows, y)), 1)
    return float(slope)


# Panels of labelled lines.


Points = tuple[Sequence[float], Sequence[float]]
"""x and y of a line."""
MAX_MARKED_POINTS = 30
"""A line of more points has no markers."""
FEW_DECADES = 1000
"""Ratio of the ends of a logarithmic axis below which 2 and 5 have labels, too."""
MAX_TICK_CHARACTERS = 90
"""Labels of an x axis that are longer together are turned, and small."""


def lines_of(rows: Sequence[Row], x: str, names: Iterable[str]) -> dict[str, Points]:
    """Make a line of each of the columns ``names`` over the column ``x``."""
    return {name: (column(rows, x), column(rows, name)) for name in names}


def lines_by(rows: Sequence[Row], by: str, x: str, y: str) -> dict[str, Points]:
    """Make a line of ``y`` over ``x`` for each value of the column ``by``."""
    return {
        value: (column(rows, x, **{by: value}), column(rows, y, **{by: value}))
        for value in dict.fromkeys(column(rows, by))
    }


@dataclass(frozen=True)
class Panel:
    """One panel of a figure; its title, labels, logarithmic axes and range are in the description."""

    lines: Mapping[str, Points]
    """Measured points by label."""
    predicted: Mapping[str, Points] = field(default_factory=dict)
    """Predicted points by label, drawn dashed."""
    ticks: Sequence[str] = ()
    """Labels of x = 0, 1, and so on, where x is no number."""


def conclude(
    name: str,
    *,
    tables: Mapping[str, Sequence[Row]],
    measured: Mapping[str, Measured | Mapping[str, Measured]],
    panels: Mapping[str, Panel],
    words: Mapping[str, Any],
) -> StudyResult:
    """Combine what a study has measured with its description.

    Args:
        name: the study.
        tables: rows by the name of their table.
        measured: see ``judge``.
        panels: what to draw, by the name of the panel.
        words: those of the texts.
    """
    description = describe(name)
    known = {**COMMON, **description.get("words", {}), **words}
    return StudyResult(
        method=description["method"].format(**known),
        tables={key: Table(description["tables"][key].format(**known), rows) for key, rows in tables.items()},
        claims=judge(name, measured, **words),
        figure=draw_panels(panels, description, known),
    )


def draw_panels(
    panels: Mapping[str, Panel], description: Mapping[str, Any], words: Mapping[str, Any]
) -> Figure:
    """Draw described panels side by side, each with a legend, above a caption of one line.

    A line has one style in all panels, by its name in the description's ``labels``, which may be shorter.
    """
    figure, drawn = make_panels(len(panels))
    names = description.get("labels", {})
    styles = line_styles(
        list(dict.fromkeys(names.get(label, label) for panel in panels.values() for label in panel.lines))
    )
    add_caption(figure, description["caption"].format(**words))
    for axes, (name, panel) in zip(drawn, panels.items(), strict=True):
        described = description["panels"][name]
        log = described.get("log", "")
        for label, points in panel.lines.items():
            style = line_style(styles[names.get(label, label)])
            if len(points[0]) > MAX_MARKED_POINTS:
                style["marker"] = ""
            if not described.get("joined", True):
                style["linestyle"] = ""
            axes.plot(*points, **style, label=names.get(label, label))
        for (label, points), dashes in zip(panel.predicted.items(), ("--", ":", "-."), strict=False):
            # Above the measured lines, which would hide a prediction that comes true.
            axes.plot(*points, **REFERENCE_LINE | {"linestyle": dashes}, label=label, zorder=3)
        if "x" in log:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if "y" in log:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < FEW_DECADES * low else (1,)))
            unit = described.get("unit")
            axes.yaxis.set_major_formatter("{x:g}" if unit is None else EngFormatter(unit))
            axes.yaxis.set_minor_formatter("")
        if panel.ticks:
            many = sum(map(len, panel.ticks)) > MAX_TICK_CHARACTERS / len(panels)
            style = {"rotation": 90, "fontsize": 6} if many else {}
            axes.set_xticks(range(len(panel.ticks)), panel.ticks, **style)
        axes.set(xlabel=described["x"], ylabel=described["y"])
        if "limits" in described:
            axes.set_ylim(*described["limits"])
        axes.set_title(described["title"].format(**words), fontsize=11)
        tidy_axes(axes)
        axes.legend(fontsize=8, frameon=False)
    return figure


def line_styles(labels: Sequence[str]) -> dict[str, Style]:
    """Return the styles of lines: those of the families whose names begin the labels, if any does."""
    names = [
        max((name for name in COLORS if each.startswith(name)), key=len, default=OTHER) for each in labels
    ]
    if set(names) == {OTHER}:
        return {label: series_style(index) for index, label in enumerate(labels)}
    return {label: style_of(names[i], names[:i].count(names[i])) for i, label in enumerate(labels)}


# Counts and errors.


def multiply_adds(work: Callable[[], object]) -> int:
    """Count the multiply-adds of all matrix products in ``work`` with torch's counter.

    Attention runs without fused kernels, since the counter misses those of a CPU.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops()) // 2


def relative_error(values: Tensor, expected: Tensor) -> float:
    """Compute the largest difference as a share of the largest expected value."""
    return float((values - expected).abs().max() / expected.abs().max())


def draw(*shape: int) -> Tensor:
    """Draw standard normal numbers in float64, where rounding errors are near 1e-16."""
    return torch.randn(*shape, dtype=torch.float64)
