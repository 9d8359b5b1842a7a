"""Columns of the report's result table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from compare.analysis.significance.comparison import Comparison, comparison_matrix
from compare.analysis.table import Row
from compare.experiment.convergence_file import STILL_IMPROVING
from compare.report.html.parts import Cell, ColumnHeading
from compare.report.html.significance import verdict
from compare.report.loaded_experiment import LoadedExperiment
from compare.results.column import Column, Group, Shown
from compare.results.columns import COLUMNS
from compare.results.numbers import UNKNOWN
from compare.results.score_columns import (
    INTERVALS,
    PRIMARY,
    bleu_interval_column,
    external_columns,
    length_columns,
    likelihood_columns,
    score_column,
)
from compare.scoring.metrics import METRICS

DEFAULT = (
    PRIMARY,
    "chrf",
    "params",
    "length_ratio",
    "train_tokens_per_s",
    "beam_sentences_per_s",
    "train_s",
)
"""Columns that are shown without being chosen, beside the interval, the verdict and the end of training: so
many that the table fits 1280 pixels."""


class ReportColumn(NamedTuple):
    """A column of the result table."""

    head: ColumnHeading
    cell: Callable[[Row], Cell]

    def shown_if(self, shown: bool) -> "ReportColumn":
        """Return the column, shown at once or only once the reader has chosen it."""
        return self._replace(head=replace(self.head, optional=not shown))


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
        ColumnHeading(text=column.heading, hint=hint, numeric=numeric, optional=column.name not in DEFAULT),
        lambda row: Cell(text=column.text(row), order=column.order(row)),
    )


def columns_of(
    loaded: LoadedExperiment, texts: bool, comparisons: Sequence[Comparison], reference: str
) -> list[ReportColumn]:
    """List the columns in which any run of an experiment has a value.

    Args:
        loaded: the experiment.
        texts: whether there are translations, and so intervals over sentences.
        comparisons: all comparisons; may be empty.
        reference: label of the model that the others are compared with.
    """
    rows: list[Row] = [run.result.flat() for run in loaded.finished.runs]
    several = any(len(runs) > 1 for runs in loaded.finished.labels.values())
    kinds = ["test_set"] if not several else list(INTERVALS) if texts else ["test_set", "seeds"]
    first, *further = loaded.finished.corpus.tests
    note = f"on {first}, mean ± standard deviation"
    columns = []
    if translated := _is_known(score_column(PRIMARY), rows):
        columns = [report_column(score_column(PRIMARY), rows, note)]
        columns += [_bleu_interval(kind).shown_if(kind == kinds[-1]) for kind in kinds]
    columns += _verdicts(comparisons, first, f"against {reference}", reference)
    scores = [score_column(metric) for metric in METRICS if metric != PRIMARY]
    columns += [report_column(column, rows, f"on {first}") for column in scores if _is_known(column, rows)]
    columns += [
        report_column(column, rows) for column in external_columns(name for row in rows for name in row)
    ]
    for test in further:
        if translated:
            columns.append(report_column(score_column(PRIMARY, test), rows))
            columns.append(_bleu_interval(kinds[-1], test).shown_if(False))
        figures = (*likelihood_columns(test), *length_columns(test))
        columns += [report_column(column, rows) for column in figures if _is_known(column, rows)]
        against = _verdicts(comparisons, test, f"{test} against {reference}", reference)
        columns += [column.shown_if(False) for column in against]
    columns += [
        report_column(column, rows)
        for column in COLUMNS.values()
        if column.group is not Group.IDENTITY
        and column.shown is not Shown.NEVER
        and column.name != "longer_gain"  # part of the next column
        and _is_known(column, rows)
    ]
    if translated:  # what a model would gain is measured in BLEU
        columns.append(_still_improving())
    if any(result.status != "done" for result in loaded.rows):
        columns.append(report_column(COLUMNS["status"], rows).shown_if(True))
    return columns


def _still_improving() -> ReportColumn:
    """Return the column that says whether a model was still improving when it stopped."""
    hint = (
        f"whether further updates gain at least {STILL_IMPROVING} validation BLEU, and how much, on one seed "
        "(attnbench converge)"
    )

    def cell(row: Row) -> Cell:
        gain, factor = row.get("longer_gain"), row.get("longer_factor")
        if gain is None or factor is None:
            return Cell(text="no (patience)" if row.get("stopped_by") == "patience" else "not measured")
        answer = "yes" if gain >= STILL_IMPROVING else "no"
        return Cell(text=f"{answer}, {gain:+.1f} ({factor:g}x updates)".replace("-", "−"), order=gain)

    return ReportColumn(ColumnHeading(text="still improving", hint=hint), cell)


def _is_known(column: Column, rows: Sequence[Row]) -> bool:
    """Return whether any row has a value in ``column``."""
    return any(row.get(column.name) is not None for row in rows)


def _bleu_interval(kind: str, test: str = "") -> ReportColumn:
    """Return the column of an interval, which is sorted as numbers even where no run has one."""
    column = bleu_interval_column(kind, test)
    heading = ColumnHeading(text=column.heading, hint="" if test else column.help, numeric=True)
    return ReportColumn(heading, lambda row: Cell(text=column.text(row), order=column.order(row)))


def _verdicts(
    comparisons: Sequence[Comparison], test: str, title: str, reference: str
) -> Iterator[ReportColumn]:
    """Yield the column that compares each model with the reference by ``PRIMARY`` on a test set, if any."""
    of_test = [each for each in comparisons if (each.test, each.metric) == (test, PRIMARY)]
    against = comparison_matrix(of_test).get(reference, {})

    def cell(row: Row) -> Cell:
        if row["label"] == reference:
            return Cell(text="itself", order=0.0)
        comparison = against.get(row["label"])
        return verdict(comparison.swapped()) if comparison else Cell(text=UNKNOWN)

    if against:
        yield ReportColumn(ColumnHeading(text=title, numeric=True), cell)
