"""Cells, headings and notes of a result table, before they are written in a form such as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from compare.report.conditions import distinct, find_warnings, list_conditions, list_left_out
from compare.results.column import Column, Group, Row, Shown
from compare.results.column_catalogue import find_column, list_columns
from compare.results.columns import COLUMNS
from compare.results.numbers import UNKNOWN
from compare.results.score_columns import (
    INTERVALS,
    PRIMARY,
    are_language_models,
    bleu_interval_column,
    external_columns,
    further_tests,
    length_columns,
    likelihood_columns,
    score_and_interval_column,
    score_column,
)
from compare.scoring.metrics import METRICS


class TextTable(NamedTuple):
    """A table as text."""

    headings: list[str]
    lines: list[list[str]]
    """Rows, each with one cell per heading."""
    notes: list[str]
    """Conditions of the figures, and warnings where rows do not compare."""


def layout_table(
    rows: Sequence[Row], names: Sequence[str] | None = None, runs: Sequence[Row] = ()
) -> TextTable:
    """Lay out ``rows``.

    Args:
        rows: one or more rows; every row has the same columns.
        names: columns to show, by heading or by field; by default those that ``Column.shown`` selects.
        runs: the single runs, where each row stands for several: the notes are about these.
    """
    if names is None:
        columns = {column.heading: column for column in _default_columns(rows) if _is_shown(column, rows)}
    else:
        chosen = [_chosen_column(name, rows) for name in names]
        columns = {column.heading: column for column in chosen}
    if any(row.get("status", "done") != "done" for row in rows):
        columns["status"] = COLUMNS["status"]
    lines = [[column.text(row) for column in columns.values()] for row in rows]
    ended = [run for run in runs if run["status"] == "done"] or rows
    notes = [f"{name}: {values}" for name, values in list_conditions(ended, rows)]
    return TextTable(list(columns), lines, [*notes, *list_left_out(runs), *find_warnings(ended)])


def _default_columns(rows: Sequence[Row]) -> list[Column]:
    """List the columns of all groups, with scores at the beginning of the group of quality."""
    tests = further_tests(rows[0])
    before = [column for column in COLUMNS.values() if column.group.value < Group.QUALITY.value]
    lengths = [
        column for test in ("", *tests) for column in (*likelihood_columns(test), *length_columns(test))
    ]
    after = [
        column
        for column in COLUMNS.values()
        if column.group.value >= Group.QUALITY.value and column not in lengths
    ]
    if all("seeds" in row for row in rows):
        primary = [
            score_column(PRIMARY),
            *(bleu_interval_column(kind) for kind in INTERVALS),
            *(score_column(PRIMARY, test) for test in tests),
        ]
    else:
        primary = [score_and_interval_column(PRIMARY, test) for test in ("", *tests)]
    others = [score_column(metric) for metric in METRICS if metric != PRIMARY]
    return [*before, *primary, *others, *external_columns(rows[0]), *lengths, *after]


def _is_shown(column: Column, rows: Sequence[Row]) -> bool:
    """Return whether a table without an explicit choice has ``column``."""
    match column.shown:
        case Shown.IF_KNOWN:
            return bool(distinct(rows, column.name))
        case Shown.IF_DIFFERENT:
            return len(distinct(rows, column.name)) > 1
    if column.shown is Shown.ALWAYS and are_language_models(rows):
        return bool(distinct(rows, column.name))  # nothing is translated
    return column.shown is Shown.ALWAYS


def _chosen_column(name: str, rows: Sequence[Row]) -> Column:
    """Return the column with the heading ``name``, or else one of the stored values of the field ``name``."""
    tests = further_tests(rows[0])
    if name not in rows[0] or name in {column.heading for column in list_columns(tests)}:
        return find_column(name, tests)

    def text(row: Row) -> str:
        value = row.get(name)
        if value is None:
            return UNKNOWN
        return f"{value:,.6g}" if isinstance(value, float) else str(value)

    return Column(name, name, Group.IDENTITY, render=text)
