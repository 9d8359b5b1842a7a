"""Section of speed, memory and seconds."""

from collections.abc import Iterator
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.seed_means import mean_over_seeds
from compare.analysis.table import Table
from compare.report.html.columns import report_column
from compare.report.html.curves import bar_plot
from compare.report.html.drawings import embed_figure
from compare.report.html.parts import HtmlTable, Part
from compare.results.column import Group
from compare.results.columns import COLUMNS
from compare.results.numbers import format_number

BARS = ("train_tokens_per_s", "beam_sentences_per_s", "latency_ms_p50")
"""Columns that are drawn as bars."""


def speed(finished: FinishedExperiment) -> Iterator[Part]:
    """Yield bars of the speeds that papers report, and a table of all columns of the group."""
    panels = {}
    for name in BARS:
        column = COLUMNS[name]
        values = {
            label: [value for run in runs if (value := column.order(run.result.flat())) is not None]
            for label, runs in finished.labels.items()
        }
        if any(values.values()):
            panels[column.heading] = values
    if panels:
        means = [
            f"{title}: "
            + "; ".join(f"{label} {format_number(fmean(runs))}" for label, runs in values.items() if runs)
            for title, values in panels.items()
        ]
        description = f"Means over seeds. {'. '.join(means)}."
        yield embed_figure(
            bar_plot(panels), "speed-bars", "Speed of training and of translation", description
        )
    yield _speed_table(finished)


def _speed_table(finished: FinishedExperiment) -> HtmlTable:
    """Build the table of means over seeds, without the columns in which no run has a value."""
    columns = [
        column
        for name, column in COLUMNS.items()
        if name in ("label", "seed", "seeds") or column.group is Group.SPEED
    ]
    results = [run.result.flat() for run in finished.runs]
    values = [
        {name: row[name] for name in (column.name for column in columns) if name in row} for row in results
    ]
    rows = mean_over_seeds(Table("", values)).rows
    known = [column for column in columns if any(row.get(column.name) is not None for row in rows)]
    converted = [report_column(column, rows) for column in known]
    return HtmlTable(
        title="Speed, memory and seconds",
        caption="Means over seeds. Tokens are of source and target, without padding; times are per run.",
        heads=[column.head for column in converted],
        rows=[[column.cell(row) for column in converted] for row in rows],
    )
