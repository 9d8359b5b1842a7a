"""Parts of the page as plain values: texts, numbers, lists, drawings."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from statistics import fmean
from typing import NamedTuple
from xml.etree import ElementTree as Tree

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import Bbox

from compare.analysis.tables import Row, Table
from compare.report.figures import reproducible_svg, valid_svg
from compare.report.plots import (
    PANEL_INCHES,
    REFERENCE_COLOR,
    by_label,
    draw_line,
    finish_figure,
    make_panels,
    mean_curve,
    series_color,
    tidy_axes,
)
from compare.results.text import format_number
from compare.scoring.metrics import METRICS
from data.text import visible

# Parts of the page as plain values: texts, numbers, lists.


SPELLINGS = {"aer": "AER", "f1": "F1", "flops": "FLOPs", "percent": "(%)"}
"""Words of column names that headings spell differently; metrics have their own headings."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table."""

    text: str
    order: float | None = None
    """Number to sort by; None: sorted by its text."""
    title: str = ""
    """Tooltip."""


@dataclass(frozen=True, kw_only=True)
class ColumnHeading:
    """Heading of a column."""

    text: str
    hint: str = ""
    """Explanation of the column's values."""
    numeric: bool = False
    optional: bool = False
    """Whether the column is shown only once the reader has chosen it."""


@dataclass(frozen=True, kw_only=True)
class HtmlTable:
    """A table of cells."""

    title: str
    caption: str
    """Explanation of how to read it; may be empty."""
    heads: Sequence[ColumnHeading]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot as an <svg> element, which contains its title and description."""

    name: str
    """id of its element."""
    title: str
    description: str
    svg: str
    panels: Sequence[str]
    """Windows on its parts, as <svg> elements, which a narrow page shows below each other in its place; of a
    figure with one panel, first the narrower drawing that they show."""
    choice: str = ""
    """Its name in a selection that shows one drawing of a section at a time; empty: always visible."""


Part = Drawing | HtmlTable
"""A part of a section."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under its own heading."""

    name: str
    """id of its element."""
    title: str
    notes: Sequence[str] = ()
    """Notes: first how to read the section, then what is missing and why."""
    drawings: Sequence[Drawing] = ()
    grids: Sequence[HtmlTable] = ()


def cell(value: object) -> Cell:
    """Return the cell of a value of an analysis."""
    order = float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    return Cell(text=format_number(value), order=order)


def html_table(table: Table, title: str, optional: Collection[str] = ()) -> HtmlTable:
    """Convert a table of an analysis: with the union of all columns, without empty ones.

    Args:
        table: the table.
        title: its title.
        optional: names of columns that are shown only once the reader has chosen them.
    """
    union = dict.fromkeys(name for row in table.rows for name in row)
    names = [name for name in union if any(row.get(name) is not None for row in table.rows)]
    return HtmlTable(
        title=title,
        caption=table.caption,
        heads=[
            ColumnHeading(text=heading(name), numeric=_numeric(name, table.rows), optional=name in optional)
            for name in names
        ],
        rows=[[cell(row.get(name)) for name in names] for row in table.rows],
    )


def _numeric(name: str, rows: Sequence[Row]) -> bool:
    return any(isinstance(row.get(name), int | float) for row in rows)


def heading(name: str) -> str:
    """Return a column's name in words: "BLEU difference" for "bleu_difference"."""
    spellings = SPELLINGS | {name: metric.heading for name, metric in METRICS.items()}
    return " ".join(spellings.get(word, word) for word in name.split("_"))


def signed(value: float) -> str:
    """Format a difference in BLEU with its sign."""
    return f"{value:+.1f}".replace("-", "−")


def first_to_last(rows: Sequence[Row], column: str) -> str:
    """Describe the line of each model in a plot by its ends, as means over seeds.

    Returns:
        Text such as "lstm 0.2 to 12.6; gru 0.1 to 9.1".
    """
    curves: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row[column] is not None:
            curves.setdefault(row["label"], {}).setdefault(row["seed"], []).append(row[column])
    ends = {label: [(line[0], line[-1]) for line in lines.values()] for label, lines in curves.items()}
    means = {
        label: [format_number(fmean(end)) for end in zip(*pairs, strict=True)]
        for label, pairs in ends.items()
    }
    return "; ".join(f"{label} {first} to {last}" for label, (first, last) in means.items())


# Matplotlib figures as inline SVG that follows the page's colours and has a text alternative.


SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
PAGE_COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#cccccc": "var(--line)"}
"""CSS colours that replace black, white and the grey of frames, so that they follow the page's theme."""
REFERENCE = re.compile(r"url\(#([^)]+)\)")
DIGITS = re.compile(r"(\.\d\d)\d+")
"""Digits after the second, which nobody sees and which make half of the file."""
POINTS_PER_INCH = 72
"""Unit of the coordinates of an SVG file."""
WINDOW_PADDING = 3
"""Points around the contents of a window."""

Tree.register_namespace("", SVG)


def embed_figure(figure: Figure, name: str, title: str, description: str, choice: str = "") -> Drawing:
    """Make a figure a part of the page; see ``Drawing`` and ``to_svg``."""
    svg = to_svg(figure, name, title, description)
    if len(figure.axes) > 1:
        panels = list(_panels(figure, name))
    else:  # drawn again, since its letters would be too small in a narrow page
        figure.set_figwidth(PANEL_INCHES[0])
        narrow = f"{name}-narrow"
        panels = [to_svg(figure, narrow, title, description), *_panels(figure, narrow)]
    return Drawing(name=name, title=title, description=description, svg=svg, panels=panels, choice=choice)


def to_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Draw ``figure`` as an <svg> element with a text alternative.

    Args:
        figure: any figure; its black and white follow the theme of the page.
        name: prefix of all ids, so that the drawings of one page share none.
        title: short name of the drawing.
        description: text alternative for the drawing.
    """
    buffer = BytesIO()
    with reproducible_svg():
        figure.savefig(buffer, format="svg", transparent=True)
    root = Tree.fromstring(valid_svg(buffer.getvalue()))
    for tag in ("metadata", "defs"):  # the author, and a style that would apply beyond the drawing
        root.remove(root.find(f"{{{SVG}}}{tag}"))  # type: ignore[arg-type]
    _rename(root, name)
    root[0].set("id", f"{name}-figure")
    for element in root.iter():
        _restyle(element)
    _describe(root, name, title, description)
    return Tree.tostring(root, encoding="unicode")


def _panels(figure: Figure, name: str) -> Iterator[str]:
    """Yield windows on each panel of a figure that was just drawn, then on each entry of its legend."""
    figure.set_dpi(POINTS_PER_INCH)  # in which it was drawn: legends keep their positions in dots
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for axes in figure.axes:
        box = axes.get_tightbbox(renderer)
        assert box is not None
        yield _window(figure, name, box.padded(WINDOW_PADDING), "panel")
    for legend in figure.legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            assert handle is not None
            boxes = [handle.get_window_extent(renderer), text.get_window_extent(renderer)]
            yield _window(figure, name, Bbox.union(boxes).padded(WINDOW_PADDING), "entry")


def _window(figure: Figure, name: str, box: Bbox, kind: str) -> str:
    """Return an <svg> element that shows the part of a drawing in ``box``, in points from below."""
    y = figure.get_figheight() * POINTS_PER_INCH - box.y1
    return (
        f'<svg class="{kind}" viewBox="{box.x0:.1f} {y:.1f} {box.width:.1f} {box.height:.1f}" '
        f'style="max-width: {box.width * 4 / 3:.0f}px"><use href="#{name}-figure"/></svg>'
    )


def _rename(root: Tree.Element, name: str) -> None:
    """Prefix every referenced id with ``name``, and remove all others."""
    used = set(
        REFERENCE.findall(" ".join(value for element in root.iter() for value in element.attrib.values()))
    )
    used |= {element.attrib[f"{{{XLINK}}}href"][1:] for element in root.iter(f"{{{SVG}}}use")}
    for element in root.iter():
        identifier = element.attrib.pop("id", None)
        if identifier in used:
            element.set("id", f"{name}-{identifier}")
        if target := element.attrib.pop(f"{{{XLINK}}}href", None):
            element.set("href", f"#{name}-{target[1:]}")
        for key, value in element.attrib.items():
            element.set(key, REFERENCE.sub(rf"url(#{name}-\1)", value))


def _restyle(element: Tree.Element) -> None:
    """Leave colours and fonts to the page, and round coordinates."""
    style = re.sub(r"\s*font-family:[^;]*;?", "", element.attrib.get("style", ""))
    for colour, page_colour in PAGE_COLOURS.items():
        style = style.replace(colour, page_colour)
    if style:
        element.set("style", style)
    for key in {"d", "x", "y", "transform", "width", "height"} & element.attrib.keys():
        element.set(key, DIGITS.sub(r"\1", " ".join(element.attrib[key].split())))
    element.tail = None
    if element.tag not in (f"{{{SVG}}}text", f"{{{SVG}}}tspan"):
        element.text = None


def _describe(root: Tree.Element, name: str, title: str, description: str) -> None:
    """Make the drawing one image for screen readers, as large as the box around it."""
    del root.attrib["width"], root.attrib["height"]
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    root.set("fill", "currentColor")
    for index, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = Tree.Element(f"{{{SVG}}}{tag}", {"id": f"{name}-{tag}"})
        element.text = visible(text)
        root.insert(index, element)


# Figures that only the HTML report has: learning curves, and bars with their spread.


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
