"""Sections of the page that come from analyses: plots and tables, or the reason for a failure."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from compare.analysis.alignment import BASELINE, align_experiment, attention_spread, median_over_seeds
from compare.analysis.efficiency import pareto, progress, time_to_quality
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, timed_spread
from compare.analysis.quality import behaviour, by_distance, by_length, copies_and_numbers, rare_words
from compare.analysis.tables import Row, Table, mean_over_seeds
from compare.analysis.word_attention import ARG_MAX, AttentionHead
from compare.report.html.parts import (
    Bar,
    Drawing,
    HtmlTable,
    Part,
    Section,
    bar_plot,
    embed_figure,
    first_to_last,
    html_table,
    learning_plot,
)
from compare.report.html.results import report_column
from compare.report.plots import (
    SPENT,
    Rival,
    distance_plot,
    length_plot,
    pareto_plot,
    progress_plot,
    word_plot,
)
from compare.results.column import Group
from compare.results.columns import COLUMNS, SPREAD_ENDS, SPREADS
from compare.results.text import format_number
from compare.system.messages import explain

# Section of speed, memory and seconds.


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


logger = logging.getLogger(__name__)

NO_TEXTS = "Not made: the texts cannot be read."

Make = Callable[[FinishedExperiment], Iterator[Part]]


class _Plan(NamedTuple):
    """A section of the page to be made: its heading, and the function that makes its content."""

    name: str
    title: str
    needs_texts: bool
    make: Make


def sections(finished: FinishedExperiment, no_texts: str | None) -> list[Section]:
    """Make one section per analysis; if an analysis fails, its section contains the reason."""
    return [_section(plan, finished, no_texts) for plan in PLANS]


def _section(plan: _Plan, finished: FinishedExperiment, no_texts: str | None) -> Section:
    if plan.needs_texts and no_texts:
        return Section(name=plan.name, title=plan.title, notes=[NO_TEXTS])
    logger.info(f"report: {plan.title.lower()}")
    parts: list[Part] = []
    notes = []
    try:
        parts.extend(plan.make(finished))
    except (OSError, ValueError) as error:
        notes.append(f"Not made: {explain(error)}")
        logger.info(f"report: {plan.title.lower()}: {notes[0]}")
    return Section(
        name=plan.name,
        title=plan.title,
        notes=notes,
        drawings=[part for part in parts if isinstance(part, Drawing)],
        grids=[part for part in parts if isinstance(part, HtmlTable)],
    )


def _learning(finished: FinishedExperiment) -> Iterator[Part]:
    rows = progress(finished).rows
    figures = {
        name: ends for name in ("bleu", "loss") if (ends := first_to_last(rows, name))
    }  # language models have no BLEU
    titles = {"bleu": "BLEU", "loss": "Loss"}
    title = f"Validation loss{' and BLEU' if 'bleu' in figures else ''} against updates"
    description = (
        "Lines are means over seeds, bands go from the lowest to the highest. From first to last validation, "
        + " ".join(f"{titles[name]}: {ends}." for name, ends in figures.items())
    )
    yield embed_figure(learning_plot(rows), "learning", title, description)


def _quality(finished: FinishedExperiment) -> Iterator[Part]:
    rows = progress(finished).rows
    for cost, axis in SPENT.items():
        if cost == "updates" or any(row[cost] is None for row in rows):
            continue  # the learning curves show updates; not every machine reads its joules
        title = f"Validation BLEU against {axis}"
        description = (
            f"From first to last validation, BLEU: {first_to_last(rows, 'bleu')}. "
            f"Cost up to these validations: {first_to_last(rows, cost)}."
        )
        yield embed_figure(progress_plot(rows, cost), f"cost-{cost}", title, description, choice=cost)
    yield html_table(mean_over_seeds(time_to_quality(rows)), "Cost of reaching shares of the best BLEU")


def _pareto(finished: FinishedExperiment) -> Iterator[Part]:
    table = pareto(finished)
    rivals: dict[Rival, tuple[str, str]] = {
        "beam_sentences_per_s": ("speed_front", "decoding speed"),
        "params": ("size_front", "number of parameters"),
    }
    for rival, (front, words) in rivals.items():
        title = f"Test BLEU against {words}"
        on = ", ".join(str(row["label"]) for row in table.rows if row[front])
        description = f"On the front, where no other model is better in one and as good in the other: {on}."
        yield embed_figure(pareto_plot(table.rows, rival), f"pareto-{rival}", title, description)
    yield html_table(table, "Models on the Pareto fronts")


def _lengths(finished: FinishedExperiment) -> Iterator[Part]:
    for make, plot, name, words in (
        (by_length, length_plot, "length", "length of the source"),
        (by_distance, distance_plot, "distance", "distance to the lengths of training"),
    ):
        table, title = make(finished), f"BLEU and chrF by {words}"
        description = f"From the first group to the last, BLEU: {first_to_last(table.rows, 'bleu')}."
        yield embed_figure(plot(table.rows), name, title, description)
        yield html_table(mean_over_seeds(table), title)


def _words(finished: FinishedExperiment) -> Iterator[Part]:
    test = finished.corpus.tests[0]
    table = rare_words(finished, test)
    title = "Recall and precision of words by training count"
    description = (
        f"Recall from the rarest group to the most frequent: {first_to_last(table.rows, 'recall_percent')}."
    )
    yield embed_figure(word_plot(table.rows), "words", title, description)
    yield html_table(mean_over_seeds(table), "Words by training count")
    yield html_table(mean_over_seeds(copies_and_numbers(finished, test)), "Names and numbers")


def _faults(finished: FinishedExperiment) -> Iterator[Part]:
    yield html_table(mean_over_seeds(behaviour(finished)), "Faults of the translations")


PLANS = (
    _Plan("learning-curves", "Learning curves", False, _learning),
    _Plan("time-to-quality", "Time to quality", False, _quality),
    _Plan("pareto", "Quality against speed and size", False, _pareto),
    _Plan("speed", "Speed", False, speed),
    _Plan("lengths", "Quality by length", True, _lengths),
    _Plan("rare-words", "Rare words, names and numbers", True, _words),
    _Plan("faults", "Repetition, truncation, length", True, _faults),
)
"""The sections in the order of the page."""


# Section on attention as alignment: alignment error rate against gold links, and entropy.


TITLE = "Attention as alignment"
ERRORS = (
    "Against the gold links of the test set (Och and Ney 2003), by the best head or mean of heads and the "
    "best threshold, both chosen on validation; medians over seeds. The diagonal needs no model."
)
HEADS = "On validation, by arg max; means over seeds."
SPREAD = (
    "Entropy of the weights that each target word of the test set gives to the source words: mean over all "
    "heads, lowest head (narrowest) and highest (widest). Shares are of the logarithm of the source "
    "length. Means over seeds."
)


def alignment(finished: FinishedExperiment) -> tuple[Section, dict[tuple[str, int], AttentionHead]]:
    """Make the section of alignment errors and entropies; also return the best head of each run."""
    notes: list[str] = []
    drawings: list[Drawing] = []
    grids: list[HtmlTable] = []
    chosen: dict[tuple[str, int], AttentionHead] = {}
    try:
        found = align_experiment(finished)
        chosen = found.chosen
        drawings.append(_error_bars(found.rows, finished.labels))
        grids.append(html_table(Table(ERRORS, median_over_seeds(found.rows)), "Alignment errors"))
        grids.append(html_table(mean_over_seeds(Table(HEADS, found.heads)), "Alignment errors of every head"))
    except (OSError, ValueError) as error:
        notes.append(f"Alignment errors are not shown: {explain(error)}")
    try:
        logger.info("report: entropy of attention")
        grids.append(
            html_table(mean_over_seeds(Table(SPREAD, attention_spread(finished))), "Entropy of attention")
        )
    except (OSError, ValueError) as error:
        notes.append(f"Entropies are not shown: {explain(error)}")
    section = Section(name="alignment", title=TITLE, notes=notes, drawings=drawings, grids=grids)
    return section, chosen


def _error_bars(rows: Sequence[Row], labels: Iterable[str]) -> Drawing:
    """Draw the AER by arg max of each model's best head, and of the diagonal baseline.

    A model without attention has no bar.
    """
    values: dict[str, list[float]] = {label: [] for label in (*labels, BASELINE)}
    for row in rows:
        if row["method"] in (ARG_MAX, BASELINE) and row["read"] != "mean" and row["aer"] is not None:
            values[row["label"]].append(row["aer"])
    title = "Alignment error rate of each model's best head, by arg max"
    means = "; ".join(f"{label} {format_number(fmean(own))}" for label, own in values.items() if own)
    panels = {"alignment error rate (0 is best)": {label: Bar.over(own) for label, own in values.items()}}
    return embed_figure(bar_plot(panels), "aer-bars", title, f"Means over seeds: {means}.")
