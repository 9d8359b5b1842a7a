"""Sections of the page: analyses with plots and tables, alignment, tuning, and the methods."""

import base64
import json
import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from compare.analysis import alignment, efficiency, quality
from compare.analysis.efficiency import COSTS, SIZE, SPEED
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, timed_spread
from compare.analysis.tables import Row, Table, mean_over_seeds, plain_column
from compare.analysis.word_attention import ARG_MAX
from compare.attention.layers import AttentionHead
from compare.config.run import runs_to_toml
from compare.experiment.tune import TRIALS, TrialResult, find_winners, read_trials, summarize
from compare.report import plots
from compare.report.conditions import distinct, list_conditions
from compare.report.plots import Bar
from compare.results.columns import COLUMNS, SPREAD_ENDS, SPREADS, Group
from compare.results.text import UNKNOWN, format_number
from compare.scoring.metrics import METRICS, Metric, MetricOptions
from compare.system.messages import explain
from compare.system.plugins import code_version
from compare.training.serialization import FINAL

logger = logging.getLogger(__name__)

NO_TEXTS = "Not made: the texts cannot be read."


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot as an image, and its text alternative."""

    name: str
    """id of its element."""
    title: str
    description: str
    image: str
    """The address of an SVG image that holds the image itself; no script in it could run."""
    choice: str = ""
    """Its name in a selection that shows one drawing of a section at a time; empty: always visible."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under its own heading."""

    name: str
    """id of its element."""
    title: str
    notes: Sequence[str] = ()
    """Notes: first how to read the section, then what is missing and why."""
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()


def embed_figure(figure: Figure, name: str, title: str, description: str = "", choice: str = "") -> Drawing:
    """Make a figure a part of the page.

    Args:
        figure: any figure.
        name: id of its element.
        title: short name of the drawing.
        description: what it shows, where no table beside it says so.
        choice: see ``Drawing``.
    """
    address = f"data:image/svg+xml;base64,{base64.b64encode(plots.draw(figure, 'svg')).decode()}"
    return Drawing(name=name, title=title, description=description, image=address, choice=choice)


Part = Drawing | Table
"""A part of a section."""


def make_section(name: str, title: str, parts: Iterator[Part]) -> Section:
    """Make a section of its parts; where they cannot be made, it contains the reason."""
    logger.info(f"report: {title.lower()}")
    made: list[Part] = []
    notes = []
    try:
        made.extend(parts)
    except (OSError, ValueError) as error:
        notes.append(f"Not made: {explain(error)}")
        logger.info(f"report: {title.lower()}: {notes[0]}")
    return Section(
        name=name,
        title=title,
        notes=notes,
        drawings=[part for part in made if isinstance(part, Drawing)],
        tables=[part for part in made if isinstance(part, Table)],
    )


def analyses(finished: FinishedExperiment) -> list[Section]:
    """Make one section per analysis."""
    return [
        Section(name=name, title=title, notes=[NO_TEXTS])
        if needs_texts and finished.no_texts
        else make_section(name, title, make(finished))
        for name, title, needs_texts, make in PLANS
    ]


def first_to_last(rows: Sequence[Row], column: str) -> str:
    """Describe the line of each model in a plot by its ends, as means over seeds.

    Returns:
        Text such as "lstm 0.2 to 12.6; gru 0.1 to 9.1".
    """
    curves: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row[column] is not None:
            curves.setdefault(row["label"], {}).setdefault(row["seed"], []).append(row[column])
    ends = {
        label: [format_number(fmean(line[end] for line in lines.values())) for end in (0, -1)]
        for label, lines in curves.items()
    }
    return "; ".join(f"{label} {first} to {last}" for label, (first, last) in ends.items())


def means(table: Table) -> Table:
    """Return the table with means over seeds."""
    return replace(table, rows=mean_over_seeds(table.rows))


def _learning(finished: FinishedExperiment) -> Iterator[Part]:
    rows = efficiency.progress(finished).rows
    lines = {"BLEU": first_to_last(rows, "bleu"), "Loss": first_to_last(rows, "loss")}
    title = f"Validation loss{' and BLEU' if lines['BLEU'] else ''} against updates"
    ends = " ".join(f"{name}: {line}." for name, line in lines.items() if line)  # language models: no BLEU
    how = (
        "Lines are means over seeds, bands go from the lowest to the highest. From first to last validation, "
    )
    yield embed_figure(plots.learning_plot(rows), "learning", title, how + ends)


def _quality(finished: FinishedExperiment) -> Iterator[Part]:
    rows = efficiency.progress(finished).rows
    for cost, axis in COSTS.items():
        if cost == "updates" or any(row[cost] is None for row in rows):
            continue  # the learning curves show updates; not every machine reads its joules
        description = (
            f"From first to last validation, BLEU: {first_to_last(rows, 'bleu')}. "
            f"Cost up to these validations: {first_to_last(rows, cost)}."
        )
        title, figure = f"Validation BLEU against {axis}", plots.progress_plot(rows, cost)
        yield embed_figure(figure, f"cost-{cost}", title, description, choice=cost)
    yield means(efficiency.time_to_quality(rows))


def _pareto(finished: FinishedExperiment) -> Iterator[Part]:
    table = efficiency.pareto(finished)
    for rival, words in ((SPEED, "decoding speed"), (SIZE, "number of parameters")):
        yield embed_figure(
            plots.pareto_plot(table.rows, rival), f"pareto-{rival}", f"Test BLEU against {words}"
        )
    yield table


BARS = ("train_tokens_per_s", "beam_sentences_per_s", "latency_ms_p50")
"""Columns that are drawn as bars, the speeds that papers report."""
SHOWN = ("label", *SPREADS, "peak_memory_bytes", "cpu_share", "train_s")
"""Columns of the table of speeds that are shown without being chosen."""


def speed(finished: FinishedExperiment) -> Iterator[Part]:
    """Yield bars of ``BARS``, and a table of all columns of speed in which a run has a value."""
    panels = {}
    for name in BARS:
        bars = {label: _bar(name, runs) for label, runs in finished.labels.items()}
        if any(bars.values()):
            panels[COLUMNS[name].heading] = bars
    if panels:
        title = (
            "Speed of training and of translation, with the lowest and highest repeat, or seed if timed alone"
        )
        yield embed_figure(plots.bar_plot(panels), "speed-bars", title)
    columns = [
        column
        for name, column in COLUMNS.items()
        if name in ("label", "seed", "seeds") or (column.group is Group.SPEED and name not in SPREAD_ENDS)
    ]
    names = [*(column.name for column in columns), *SPREAD_ENDS]
    results = [run.result.flat() for run in finished.runs]
    rows = mean_over_seeds([{name: row[name] for name in names if name in row} for row in results])
    in_turn = all(run.result.timed_together for run in finished.runs)
    how = " (lowest to highest), of one seed per model; all models took turns" if in_turn else ""
    yield Table(
        f"Medians of the timed repeats{how}. Tokens are of source and target, without padding. "
        "Memory and times are per run, means over the seeds.",
        rows,
        title="Speed, memory and seconds",
        layout=[column for column in columns if any(row.get(column.name) is not None for row in rows)],
        optional={column.heading for column in columns if column.name not in SHOWN},
    )


def _bar(name: str, runs: Sequence[FinishedRun]) -> Bar | None:
    """Return the speed of a model with its spread, or that over the seeds if each run was timed alone."""
    values = [value for run in runs if (value := getattr(run.result, name)) is not None]
    bar, spread = Bar.over(values), timed_spread(runs, name)
    return Bar(bar.value, *spread) if bar and spread else bar


def _lengths(finished: FinishedExperiment) -> Iterator[Part]:
    for make, plot in ((quality.by_length, plots.length_plot), (quality.by_distance, plots.distance_plot)):
        table = make(finished)
        yield embed_figure(plot(table.rows), make.__name__, table.title)
        yield means(table)


def _words(finished: FinishedExperiment) -> Iterator[Part]:
    test = finished.corpus.tests[0]
    table = quality.rare_words(finished, test)
    yield embed_figure(
        plots.word_plot(table.rows), "words", "Recall and precision of words by training count"
    )
    yield means(table)
    yield means(quality.copies_and_numbers(finished, test))


def _faults(finished: FinishedExperiment) -> Iterator[Part]:
    yield means(quality.behaviour(finished))


PLANS: tuple[tuple[str, str, bool, Callable[[FinishedExperiment], Iterator[Part]]], ...] = (
    ("learning-curves", "Learning curves", False, _learning),
    ("time-to-quality", "Time to quality", False, _quality),
    ("pareto", "Quality against speed and size", False, _pareto),
    ("speed", "Speed", False, speed),
    ("lengths", "Quality by length", True, _lengths),
    ("rare-words", "Rare words, names and numbers", True, _words),
    ("faults", "Repetition, truncation, length", True, _faults),
)
"""The analyses in the order of the page: id, title, whether it needs the texts, and what makes its parts."""


# Section on attention as alignment: alignment error rate against gold links, and entropy.


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


def alignment_section(finished: FinishedExperiment) -> tuple[Section, dict[tuple[str, int], AttentionHead]]:
    """Make the section of alignment errors and entropies; also return the best head of each run."""
    name, title = "alignment", "Attention as alignment"
    if finished.no_texts:
        return Section(name=name, title=title, notes=[NO_TEXTS]), {}
    notes: list[str] = []
    drawings: list[Drawing] = []
    tables: list[Table] = []
    chosen: dict[tuple[str, int], AttentionHead] = {}
    try:
        found = alignment.align_experiment(finished)
        chosen = found.chosen
        drawings.append(_error_bars(found.rows, list(finished.labels)))
        tables.append(Table(ERRORS, alignment.median_over_seeds(found.rows), "Alignment errors"))
        tables.append(Table(HEADS, mean_over_seeds(found.heads), "Alignment errors of every head"))
    except (OSError, ValueError) as error:
        notes.append(f"Alignment errors are not shown: {explain(error)}")
    try:
        logger.info("report: entropy of attention")
        tables.append(
            Table(SPREAD, mean_over_seeds(alignment.attention_spread(finished)), "Entropy of attention")
        )
    except (OSError, ValueError) as error:
        notes.append(f"Entropies are not shown: {explain(error)}")
    return Section(name=name, title=title, notes=notes, drawings=drawings, tables=tables), chosen


def _error_bars(rows: Sequence[Row], labels: Sequence[str]) -> Drawing:
    """Draw the AER by arg max of each model's best head, and of the diagonal baseline.

    A model without attention has no bar.
    """
    values: dict[str, list[float]] = {label: [] for label in (*labels, alignment.BASELINE)}
    for row in rows:
        if (
            row["method"] in (ARG_MAX, alignment.BASELINE)
            and row["read"] != "mean"
            and row["aer"] is not None
        ):
            values[row["label"]].append(row["aer"])
    title = "Alignment error rate of each model's best head, by arg max"
    panels = {"alignment error rate (0 is best)": {label: Bar.over(own) for label, own in values.items()}}
    return embed_figure(plots.bar_plot(panels), "aer-bars", title)


# Methods: settings, hashes, signatures, machines, and commands to repeat it.


class Methods(NamedTuple):
    """Settings and conditions needed to reproduce the figures."""

    shared: Table
    differing: Table
    hashes: Table
    conditions: list[tuple[str, str]]
    """Conditions of the figures as (name, value)."""
    commands: list[str]
    config: str
    """The experiment as TOML."""


def methods(finished: FinishedExperiment) -> Methods:
    """Collect the settings of all finished runs and their conditions."""
    models = {label: runs[0].run for label, runs in finished.labels.items()}
    settings = {label: run.settings() for label, run in models.items()}
    names = list(dict.fromkeys(name for model in settings.values() for name in model if name != "train.seed"))
    values = {name: [_toml(model.get(name)) for model in settings.values()] for name in names}
    keys = [f"model {label}" for label in settings]
    return Methods(
        shared=Table(
            "",
            [{"setting": name, "value": own[0]} for name, own in values.items() if len(set(own)) == 1],
            "Settings of all models, except the seed",
        ),
        differing=Table(
            "A dash: the model has no such setting.",
            [
                {"setting": name, **dict(zip(keys, own, strict=True))}
                for name, own in values.items()
                if len(set(own)) > 1
            ],
            "Settings that differ by model",
            layout=[plain_column("setting"), *map(plain_column, keys, settings)],
        ),
        hashes=_hashes(finished.runs),
        conditions=_conditions(finished),
        commands=_commands(finished),
        config=runs_to_toml(list(models.values())),
    )


def _toml(value: Any) -> str:
    """Format a setting as in a TOML file."""
    return UNKNOWN if value is None else json.dumps(value, ensure_ascii=False)


def _hashes(runs: Sequence[FinishedRun]) -> Table:
    """Build the table of hashes, one row per run."""
    names = ("data_hash", "batch_hash", "config_hash", "weights", "code_version")
    rows = [
        run.result.flat()
        | {"run": f"{run.result.label}, seed {run.result.seed}"}
        | {"weights": run.result.files.get(f"checkpoints/{FINAL}")}
        for run in runs
    ]
    headings = [COLUMNS[name].heading if name in COLUMNS else name for name in names]
    title = "Hashes (sha256) of the inputs and weights of each run"
    return Table("", rows, title, layout=[plain_column("run"), *map(plain_column, names, headings)])


def _conditions(finished: FinishedExperiment) -> list[tuple[str, str]]:
    """List the known conditions of the figures as (name, value)."""
    rows = [run.result.flat() for run in finished.runs]
    signatures = {
        metric.heading: _signature(metric, rows) for name, metric in METRICS.items() if distinct(rows, name)
    }
    splits = finished.corpus.splits.items()
    pairs = ", ".join(f"{name} {len(pairs.src):,}" for name, pairs in splits if pairs.src)
    conditions = {**signatures, **dict(list_conditions(rows)), "Code of this report": code_version()}
    return [(name, value) for name, value in {**conditions, "Pairs": pairs}.items() if value]


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
    if folder is None and not (finished.folder / TRIALS).exists():
        return None
    section = Section(name="tuning", title="Tuning")
    try:
        trials = read_trials(folder or finished.folder)
        if not trials:
            raise ValueError(
                f"{(folder or finished.folder) / TRIALS} holds no trials: let attnbench tune end some"
            )
    except (OSError, ValueError) as error:
        if folder:
            raise
        return replace(section, notes=[f"Not made: {explain(error)}"])
    curve = efficiency.tuning_curve(trials)
    effort = "Effort of the search, and the best trial of each model."
    return replace(
        section,
        notes=_tuning_notes(finished, trials),
        drawings=[embed_figure(plots.tuning_plot(curve.rows), "tuning", curve.title)],
        tables=[Table(effort, summarize(trials), "Trials and winners"), curve],
    )


def _have_equal_effort(trials: Sequence[TrialResult]) -> bool:
    """Return whether trials of one number have equal settings, and all that ended well equal updates."""
    draws = {(trial.trial, tuple(sorted(trial.settings.items()))) for trial in trials}
    updates = {trial.updates for trial in trials if trial.status == "done"}
    return len(draws) == len({trial.trial for trial in trials}) and len(updates) <= 1


def _tuning_notes(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> list[str]:
    """Say how the search went, and where the models were not run with what it found."""
    if len({row["trials"] for row in summarize(trials)}) > 1:
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
