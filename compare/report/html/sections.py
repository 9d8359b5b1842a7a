"""Sections of the page: analyses with plots and tables, alignment, tuning, and the methods."""

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from compare.analysis.alignment import BASELINE, align_experiment, attention_spread, median_over_seeds
from compare.analysis.efficiency import pareto, progress, time_to_quality
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, timed_spread
from compare.analysis.quality import behaviour, by_distance, by_length, copies_and_numbers, rare_words
from compare.analysis.tables import Row, Table, mean_over_seeds
from compare.analysis.tuning import tuning_curve
from compare.analysis.word_attention import ARG_MAX, AttentionHead
from compare.config.run import runs_to_toml
from compare.experiment.tune import TRIALS, TrialResult, find_winners, read_trials, summarize
from compare.report.conditions import distinct, list_conditions
from compare.report.html.parts import Drawing, Section, embed_figure
from compare.report.plots import (
    SPENT,
    Bar,
    Rival,
    bar_plot,
    by_label,
    distance_plot,
    learning_plot,
    length_plot,
    pareto_plot,
    progress_plot,
    tuning_plot,
    word_plot,
)
from compare.report.table import ShownTable, analysis_table, plain_column
from compare.results.column import Group
from compare.results.columns import COLUMNS, SPREAD_ENDS, SPREADS
from compare.results.text import UNKNOWN, format_number
from compare.scoring.metrics import METRICS, Metric, MetricOptions
from compare.system.messages import explain
from compare.system.plugins import code_version
from compare.training.serialization import FINAL

logger = logging.getLogger(__name__)

NO_TEXTS = "Not made: the texts cannot be read."

Part = Drawing | ShownTable
"""A part of a section."""

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


def _speed_table(finished: FinishedExperiment) -> ShownTable:
    """Build the table of means over seeds, without the columns in which no run has a value."""
    columns = [
        column
        for name, column in COLUMNS.items()
        if name in ("label", "seed", "seeds") or (column.group is Group.SPEED and name not in SPREAD_ENDS)
    ]
    names = [*(column.name for column in columns), *SPREAD_ENDS]
    results = [run.result.flat() for run in finished.runs]
    rows = mean_over_seeds(
        Table("", [{name: row[name] for name in names if name in row} for row in results])
    ).rows
    in_turn = all(run.result.timed_together for run in finished.runs)
    how = " (lowest to highest), of one seed per model; all models took turns" if in_turn else ""
    return ShownTable(
        title="Speed, memory and seconds",
        caption=f"Medians of the timed repeats{how}. Tokens are of source and target, without padding. "
        "Memory and times are per run, means over the seeds.",
        columns=[column for column in columns if any(row.get(column.name) is not None for row in rows)],
        rows=rows,
        optional={column.heading for column in columns if column.name not in SHOWN},
    )


# Sections of analyses.


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
        tables=[part for part in parts if isinstance(part, ShownTable)],
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
    yield analysis_table(mean_over_seeds(time_to_quality(rows)), "Cost of reaching shares of the best BLEU")


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
    yield analysis_table(table, "Models on the Pareto fronts")


def _lengths(finished: FinishedExperiment) -> Iterator[Part]:
    for make, plot, name, words in (
        (by_length, length_plot, "length", "length of the source"),
        (by_distance, distance_plot, "distance", "distance to the lengths of training"),
    ):
        table, title = make(finished), f"BLEU and chrF by {words}"
        description = f"From the first group to the last, BLEU: {first_to_last(table.rows, 'bleu')}."
        yield embed_figure(plot(table.rows), name, title, description)
        yield analysis_table(mean_over_seeds(table), title)


def _words(finished: FinishedExperiment) -> Iterator[Part]:
    test = finished.corpus.tests[0]
    table = rare_words(finished, test)
    title = "Recall and precision of words by training count"
    description = (
        f"Recall from the rarest group to the most frequent: {first_to_last(table.rows, 'recall_percent')}."
    )
    yield embed_figure(word_plot(table.rows), "words", title, description)
    yield analysis_table(mean_over_seeds(table), "Words by training count")
    yield analysis_table(mean_over_seeds(copies_and_numbers(finished, test)), "Names and numbers")


def _faults(finished: FinishedExperiment) -> Iterator[Part]:
    yield analysis_table(mean_over_seeds(behaviour(finished)), "Faults of the translations")


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


ALIGNMENT = "Attention as alignment"
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
    tables: list[ShownTable] = []
    chosen: dict[tuple[str, int], AttentionHead] = {}
    try:
        found = align_experiment(finished)
        chosen = found.chosen
        drawings.append(_error_bars(found.rows, finished.labels))
        tables.append(analysis_table(Table(ERRORS, median_over_seeds(found.rows)), "Alignment errors"))
        tables.append(
            analysis_table(mean_over_seeds(Table(HEADS, found.heads)), "Alignment errors of every head")
        )
    except (OSError, ValueError) as error:
        notes.append(f"Alignment errors are not shown: {explain(error)}")
    try:
        logger.info("report: entropy of attention")
        tables.append(
            analysis_table(mean_over_seeds(Table(SPREAD, attention_spread(finished))), "Entropy of attention")
        )
    except (OSError, ValueError) as error:
        notes.append(f"Entropies are not shown: {explain(error)}")
    section = Section(name="alignment", title=ALIGNMENT, notes=notes, drawings=drawings, tables=tables)
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


# Methods: settings, hashes, signatures, machines, and commands to repeat it.


Settings = dict[str, Any]
"""Settings by "section.key"."""


class Methods(NamedTuple):
    """Settings and conditions needed to reproduce the figures."""

    shared: ShownTable
    differing: ShownTable | None
    hashes: ShownTable
    conditions: list[tuple[str, str]]
    """Conditions of the figures as (name, value)."""
    commands: list[str]
    config: str
    """The experiment as TOML."""


def methods(finished: FinishedExperiment) -> Methods:
    """Collect the settings of all finished runs and their conditions."""
    models = {label: runs[0].run for label, runs in finished.labels.items()}
    settings: dict[str, Settings] = {label: run.settings() for label, run in models.items()}
    names = list(dict.fromkeys(name for model in settings.values() for name in model if name != "train.seed"))
    same = [name for name in names if len({repr(model.get(name)) for model in settings.values()}) == 1]
    different = [name for name in names if name not in same]
    first = next(iter(settings.values()))
    return Methods(
        shared=ShownTable(
            title="Settings of all models, except the seed",
            columns=[plain_column("setting"), plain_column("value")],
            rows=[{"setting": name, "value": _toml(first[name])} for name in same],
        ),
        differing=_differing(settings, different) if different else None,
        hashes=_hashes(finished.runs),
        conditions=_conditions(finished),
        commands=_commands(finished),
        config=runs_to_toml(list(models.values())),
    )


def _differing(settings: Mapping[str, Settings], names: Sequence[str]) -> ShownTable:
    """Build the table of the settings ``names``, one column per model."""
    return ShownTable(
        title="Settings that differ by model",
        caption="A dash: the model has no such setting.",
        columns=[plain_column("setting"), *(plain_column(f"model {label}", label) for label in settings)],
        rows=[
            {"setting": name}
            | {f"model {label}": _toml(model.get(name)) for label, model in settings.items()}
            for name in names
        ],
    )


def _toml(value: Any) -> str:
    """Format a setting as in a TOML file."""
    return UNKNOWN if value is None else json.dumps(value, ensure_ascii=False)


def _hashes(runs: Sequence[FinishedRun]) -> ShownTable:
    """Build the table of hashes, one row per run."""
    names = ("data_hash", "batch_hash", "config_hash", "weights", "code_version")
    headings = {name: COLUMNS[name].heading for name in names if name in COLUMNS}
    rows = [
        run.result.flat()
        | {"run": f"{run.result.label}, seed {run.result.seed}"}
        | {"weights": run.result.files.get(f"checkpoints/{FINAL}")}
        for run in runs
    ]
    return ShownTable(
        title="Hashes (sha256) of the inputs and weights of each run",
        columns=[plain_column("run"), *(plain_column(name, headings.get(name, name)) for name in names)],
        rows=rows,
    )


def _conditions(finished: FinishedExperiment) -> list[tuple[str, str]]:
    """List the known conditions of the figures as (name, value)."""
    rows = [run.result.flat() for run in finished.runs]
    conditions = dict(list_conditions(rows))
    signatures = {
        metric.heading: _signature(metric, rows) for name, metric in METRICS.items() if distinct(rows, name)
    }
    splits = finished.corpus.splits.items()
    pairs = ", ".join(f"{name} {len(pairs.src):,}" for name, pairs in splits if pairs.src)
    conditions = {**signatures, **conditions, "Code of this report": code_version(), "Pairs": pairs}
    return [(name, value) for name, value in conditions.items() if value]


def _signature(metric: Metric, rows: Sequence[Row]) -> str:
    """Return the signatures in ``rows``, or today's where none is recorded, as for TER of one test set."""
    columns = dict.fromkeys(
        name for row in rows for name in row if name.startswith(f"{metric.name}_signature")
    )
    recorded = dict.fromkeys(signature for name in columns for signature in distinct(rows, name))
    return ", ".join(recorded) or metric.compute([""], [[""]], MetricOptions()).signature


def _commands(finished: FinishedExperiment) -> list[str]:
    """List the commands that repeat the experiment, its check and its report."""
    name, seeds = finished.folder.resolve().name, dict.fromkeys(row.seed for row in finished.results)
    folder = shlex.quote(f"runs/{name}")
    return [
        f"attnbench run {shlex.quote(f'{name}.toml')} --seeds {','.join(map(str, seeds))}",
        f"attnbench check {folder}",
        f"attnbench report {folder}",
    ]


# Section on tuning: effort and winners of the search, expected best score against trials.


TUNING = "Tuning"


def tuning_section(finished: FinishedExperiment, folder: Path | None) -> Section | None:
    """Make the section from a search's trials.jsonl.

    Args:
        finished: the experiment, whose settings are compared with the winners'.
        folder: folder of the search; None: that of the experiment, where it has a trials.jsonl.

    Returns:
        The section; None for an experiment without a search.

    Raises:
        OSError: ``folder`` has no trials.jsonl.
        ValueError: ``folder`` has a damaged trials.jsonl, or one without trials.
    """
    if folder is None:
        if not (finished.folder / TRIALS).exists():
            return None
        try:
            return _tuning(finished, read_trials(finished.folder))
        except (OSError, ValueError) as error:
            return Section(name="tuning", title=TUNING, notes=[f"Not made: {explain(error)}"])
    trials = read_trials(folder)
    if not trials:
        raise ValueError(f"{folder / TRIALS} holds no trials: let attnbench tune end some")
    return _tuning(finished, trials)


def _tuning(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> Section:
    if not trials:
        return Section(name="tuning", title=TUNING, notes=["No trial has ended."])
    curve = tuning_curve(trials)
    title = "Expected best validation BLEU against number of trials"
    ends = {label: (rows[0], rows[-1]) for label, rows in by_label(curve.rows).items()}
    changes = "; ".join(
        f"{label} " + " to ".join(format_number(row["expected_bleu"]) for row in pair)
        for label, pair in ends.items()
    )
    drawing = embed_figure(
        tuning_plot(curve.rows), "tuning", title, f"From one trial to all, without replacement: {changes}."
    )
    effort = Table("Effort of the search, and the best trial of each model.", summarize(trials))
    return Section(
        name="tuning",
        title=TUNING,
        notes=_tuning_notes(finished, trials),
        drawings=[drawing],
        tables=[analysis_table(effort, "Trials and winners"), analysis_table(curve, title)],
    )


def _have_equal_effort(trials: Sequence[TrialResult]) -> bool:
    """Return whether trials of one number have equal settings, and all that ended well equal updates."""
    draws = {(trial.trial, tuple(sorted(trial.settings.items()))) for trial in trials}
    updates = {trial.updates for trial in trials if trial.status == "done"}
    return len(draws) == len({trial.trial for trial in trials}) and len(updates) <= 1


def _tuning_notes(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> list[str]:
    """Say how the search went, and where the models were not run with what it found."""
    counts = {row["trials"] for row in summarize(trials)}
    if len(counts) > 1:
        notes = ["Models got different numbers of trials: the search has not ended, so compare with care."]
    elif _have_equal_effort(trials):
        notes = ["Every model got the same random draws; the validation set alone decided."]
    else:
        notes = ["Models were tuned with different draws or numbers of updates, so compare with care."]
    winners = find_winners(trials)
    for label, runs in finished.labels.items():
        settings = runs[0].run.model.settings()
        winner = winners.get(label)
        if winner is None:
            notes.append(f"{label}: no trial of it ended well, so its settings are not tuned.")
        elif other := [name for name, value in winner.settings.items() if settings.get(name) != value]:
            given = ", ".join(
                f"{name} {settings.get(name)} (best trial: {winner.settings[name]})" for name in other
            )
            notes.append(f"{label} was run with other settings than its best trial: {given}.")
    return notes
