"""What the page is made of, as plain values: texts, numbers, lists."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from compare.analysis.table import Row, Table
from compare.results.numbers import format_number

HEADINGS = {"bleu": "BLEU", "chrf": "chrF", "aer": "AER", "f1": "F1", "flops": "FLOPs", "percent": "(%)"}
"""Words of column names that are written otherwise than they are spelled there."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table, and what it is sorted by where that is not its text."""

    text: str
    order: float | None = None
    title: str = ""
    """Said of the cell when it is pointed at."""


@dataclass(frozen=True, kw_only=True)
class ColumnHeading:
    """The heading of a column, and what the column holds where that needs saying."""

    text: str
    hint: str = ""
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class HtmlTable:
    """A table of cells."""

    title: str
    """What it is, in a few words."""
    caption: str
    """How to read it; may be empty."""
    heads: Sequence[ColumnHeading]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot as an <svg> element, which holds title and description too, and its figures as a table."""

    name: str
    """An id of the page."""
    title: str
    description: str
    svg: str
    choice: str = ""
    """Its name among the drawings of its section of which one is seen at a time; empty: always seen."""


Part = Drawing | HtmlTable
"""What a section is made of."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under its heading."""

    name: str
    """An id of the page."""
    title: str
    notes: Sequence[str] = ()
    """What one should know: first how to read it, then what is missing and why."""
    drawings: Sequence[Drawing] = ()
    grids: Sequence[HtmlTable] = ()


def cell(value: object) -> Cell:
    """A value of an analysis' table as people read it."""
    known = isinstance(value, int | float) and math.isfinite(value)
    return Cell(text=format_number(value), order=float(value) if known else None)  # type: ignore[arg-type]


def html_table(table: Table, title: str) -> HtmlTable:
    """A table of an analysis; a column that any row has stands in all, and one that knows nothing goes."""
    named = dict.fromkeys(name for row in table.rows for name in row)
    names = [name for name in named if any(row.get(name) is not None for row in table.rows)]
    return HtmlTable(
        title=title,
        caption=table.caption,
        heads=[ColumnHeading(text=heading(name), numeric=_numeric(name, table.rows)) for name in names],
        rows=[[cell(row.get(name)) for name in names] for row in table.rows],
    )


def _numeric(name: str, rows: Sequence[Row]) -> bool:
    return any(isinstance(row.get(name), int | float) for row in rows)


def heading(name: str) -> str:
    """The name of a column in words: "bleu_difference" is BLEU difference."""
    return " ".join(HEADINGS.get(word, word) for word in name.split("_"))


def explain(error: Exception) -> str:
    """What an error says, in one line that ends as a sentence does."""
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?")) else f"{text}."


def signed(value: float) -> str:
    """A difference in BLEU with its sign."""
    return f"{value:+.1f}".replace("-", "−")


def first_to_last(rows: Sequence[Row], column: str) -> str:
    """What each model's line in a plot says, as means over seeds: "lstm 0.2 to 12.6; gru 0.1 to 9.1"."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row[column] is not None:
            found.setdefault(row["label"], {}).setdefault(row["seed"], []).append(row[column])
    ends = {label: [(line[0], line[-1]) for line in lines.values()] for label, lines in found.items()}
    means = {
        label: [format_number(fmean(end)) for end in zip(*pairs, strict=True)]
        for label, pairs in ends.items()
    }
    return "; ".join(f"{label} {first} to {last}" for label, (first, last) in means.items())
