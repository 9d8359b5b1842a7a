"""Parts of the page as plain values: texts, numbers, lists."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from compare.analysis.table import Row, Table
from compare.results.numbers import format_number
from compare.scoring.metrics import METRICS

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
