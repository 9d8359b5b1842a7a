"""Columns of the report's result table."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from compare.analysis.significance.comparison import Comparison
from compare.analysis.table import Row
from compare.report.html.load import LoadedExperiment
from compare.report.html.parts import Cell, ColumnHeading
from compare.report.html.significance import verdict
from compare.results.column import Column, Group, Shown
from compare.results.columns import COLUMNS
from compare.results.numbers import UNKNOWN
from compare.results.score_columns import (
    INTERVALS,
    PRIMARY,
    bleu_interval_column,
    length_columns,
    score_column,
)
from compare.scoring.metrics import METRICS


class ReportColumn(NamedTuple):
    """A column of the result table."""

    head: ColumnHeading
    cell: Callable[[Row], Cell]


def report_column(column: Column, rows: Sequence[Row], note: str = "") -> ReportColumn:
    """Convert a column of result tables.

    Args:
        column: the column.
        rows: rows of the table, which tell whether the column is sorted by number.
        note: remark before the column's help.
    """
    numeric = any(column.order(row) is not None for row in rows)
    hint = "; ".join(filter(None, [note, column.help]))
    return ReportColumn(
        ColumnHeading(text=column.heading, hint=hint, numeric=numeric),
        lambda row: Cell(text=column.text(row), order=column.order(row)),
    )


def columns_of(
    loaded: LoadedExperiment, texts: bool, comparisons: Mapping[str, Comparison], reference: str
) -> list[ReportColumn]:
    """List the columns in which any run of an experiment has a value.

    Args:
        loaded: the experiment.
        texts: whether there are intervals over seeds.
        comparisons: comparisons of the reference with the other models, by label; may be empty.
        reference: label of the model that the others are compared with.
    """
    rows: list[Row] = [run.result.flat() for run in loaded.finished.runs]
    several = any(len(runs) > 1 for runs in loaded.finished.labels.values())
    kinds = list(INTERVALS) if several and texts else ["test_set"]
    first, *further = loaded.finished.corpus.tests
    note = f"on {first}, mean ± standard deviation"
    columns = [report_column(score_column(PRIMARY), rows, note)]
    columns += [_bleu_interval(kind) for kind in kinds]
    if comparisons:
        heading = ColumnHeading(text=f"against {reference}", numeric=True)
        columns.append(ReportColumn(heading, _verdict(comparisons, reference)))
    scores = [score_column(metric) for metric in METRICS if metric != PRIMARY]
    columns += [report_column(column, rows, f"on {first}") for column in scores if _is_known(column, rows)]
    for test in further:
        columns += [report_column(score_column(PRIMARY, test), rows), _bleu_interval(kinds[-1], test)]
        columns += [report_column(column, rows) for column in length_columns(test) if _is_known(column, rows)]
    columns += [
        report_column(column, rows)
        for column in COLUMNS.values()
        if column.group is not Group.IDENTITY and column.shown is not Shown.NEVER and _is_known(column, rows)
    ]
    if any(result.status != "done" for result in loaded.rows):
        columns.append(report_column(COLUMNS["status"], rows))
    return columns


def _is_known(column: Column, rows: Sequence[Row]) -> bool:
    """Return whether any row has a value in ``column``."""
    return any(row.get(column.name) is not None for row in rows)


def _bleu_interval(kind: str, test: str = "") -> ReportColumn:
    """Return the column of an interval, which is sorted as numbers even where no run has one."""
    column = bleu_interval_column(kind, test)
    heading = ColumnHeading(text=column.heading, hint="" if test else column.help, numeric=True)
    return ReportColumn(heading, lambda row: Cell(text=column.text(row), order=column.order(row)))


def _verdict(comparisons: Mapping[str, Comparison], reference: str) -> Callable[[Row], Cell]:
    """Return cells that compare a model with the reference."""

    def cell(row: Row) -> Cell:
        if row["label"] == reference:
            return Cell(text="itself", order=0.0)
        comparison = comparisons.get(row["label"])
        return verdict(comparison.swapped()) if comparison else Cell(text=UNKNOWN)

    return cell
