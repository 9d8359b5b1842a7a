"""Section of speed, memory and seconds."""

from collections.abc import Iterator, Sequence

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.seed_means import mean_over_seeds
from compare.analysis.speed_spread import timed_spread
from compare.analysis.table import Table
from compare.report.html.columns import report_column
from compare.report.html.curves import Bar, bar_plot
from compare.report.html.drawings import embed_figure
from compare.report.html.parts import HtmlTable, Part
from compare.results.column import Group
from compare.results.columns import COLUMNS, SPREAD_ENDS, SPREADS
from compare.results.numbers import format_number

BARS = ("train_tokens_per_s", "beam_sentences_per_s", "latency_ms_p50")
"""Columns that are drawn as bars."""
SHOWN = ("label", *SPREADS, "peak_memory_bytes", "cpu_share", "train_s")
"""Columns of the table that are shown without being chosen."""


def speed(finished: FinishedExperiment) -> Iterator[Part]:
    """Yield bars of the speeds that papers report, and a table of all columns of the group."""
    panels = {}
    for name in BARS:
        bars = {label: _bar(name, runs) for label, runs in finished.labels.items()}
        if any(bars.values()):
            panels[COLUMNS[name].heading] = bars
    if panels:
        values = [
            f"{title}: "
            + "; ".join(f"{label} {format_number(bar.value)}" for label, bar in bars.items() if bar)
            for title, bars in panels.items()
        ]
        lines = "Lines go from the lowest to the highest repeat, or seed where each run was timed alone."
        description = f"{lines} {'. '.join(values)}."
        yield embed_figure(
            bar_plot(panels), "speed-bars", "Speed of training and of translation", description
        )
    yield _speed_table(finished)


def _bar(name: str, runs: Sequence[FinishedRun]) -> Bar | None:
    """Return the speed of a model with its spread, or that over the seeds if each run was timed alone."""
    values = [value for run in runs if (value := getattr(run.result, name)) is not None]
    bar, spread = Bar.over(values), timed_spread(runs, name)
    return Bar(bar.value, *spread) if bar and spread else bar


def _speed_table(finished: FinishedExperiment) -> HtmlTable:
    """Build the table of means over seeds, without the columns in which no run has a value."""
    columns = [
        column
        for name, column in COLUMNS.items()
        if name in ("label", "seed", "seeds") or (column.group is Group.SPEED and name not in SPREAD_ENDS)
    ]
    results = [run.result.flat() for run in finished.runs]
    values = [
        {name: row[name] for name in (*(column.name for column in columns), *SPREAD_ENDS) if name in row}
        for row in results
    ]
    rows = mean_over_seeds(Table("", values)).rows
    known = [column for column in columns if any(row.get(column.name) is not None for row in rows)]
    converted = [report_column(column, rows).shown_if(column.name in SHOWN) for column in known]
    in_turn = all(run.result.timed_together for run in finished.runs)
    how = " (lowest to highest), of one seed per model; all models took turns" if in_turn else ""
    return HtmlTable(
        title="Speed, memory and seconds",
        caption=f"Medians of the timed repeats{how}. Tokens are of source and target, without padding. "
        "Memory and times are per run, means over the seeds.",
        heads=[column.head for column in converted],
        rows=[[column.cell(row) for column in converted] for row in rows],
    )
