"""Sections of the page: analyses with plots and tables, alignment, tuning, and the methods."""

import base64
import json
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from compare.analysis.alignment import ARG_MAX, BASELINE, align_experiment
from compare.analysis.cost import cost_points, progress, time_to_quality
from compare.analysis.efficiency import pareto, tuning_curve
from compare.analysis.finished_experiment import (
    FinishedExperiment,
    FinishedRun,
    are_timed_together,
    timed_spread,
)
from compare.analysis.quality import faults
from compare.analysis.seeds import mean_over_seeds
from compare.attention.weights import AttentionHead
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models, runs_to_toml, shared_settings
from compare.experiment.tune import BEST, TRIALS_FILE, TrialResult, find_winners, read_trials, summarize
from compare.models.styles import Style
from compare.report.conditions import list_conditions
from compare.report.drawing import REFERENCE_COLOR, Bar, bar_plot, draw
from compare.report.figures import FIGURES
from compare.report.plots import PLOTS
from compare.results.columns import COLUMNS, SPREAD_ENDS, SPREADS
from compare.results.formatting import UNKNOWN, Row, Table, plain_column
from compare.results.store import train_commands
from compare.system.log import track
from compare.system.messages import explain
from compare.system.plugins import code_version

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot as an image."""

    name: str
    title: str
    image: str
    """A data address, as which no script in the SVG can run."""
    choice: str = ""
    """Name in a list that shows one drawing of a section at a time; empty: always visible."""


Part = Drawing | Table | str
"""A text is a note: how to read the section, or the reason why something is missing."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under its own heading."""

    name: str
    title: str
    notes: Sequence[str]
    drawings: Sequence[Drawing]
    tables: Sequence[Table]


def make_section(name: str, title: str, parts: Iterable[Part]) -> Section:
    """Make a section of its parts, or of the reason why they cannot be made."""
    logger.info(f"report: {title.lower()}")
    made: list[Part] = []
    try:
        made.extend(parts)
    except (OSError, ValueError) as error:
        made.append(f"Not made: {explain(error)}")
        logger.info(f"report: {title.lower()}: {made[-1]}")
    return Section(
        name=name,
        title=title,
        notes=[part for part in made if isinstance(part, str)],
        drawings=[part for part in made if isinstance(part, Drawing)],
        tables=[part for part in made if isinstance(part, Table)],
    )


def require_texts(finished: FinishedExperiment) -> None:
    """Raise ValueError, for the note of a section, if corpus or translations cannot be read."""
    if finished.no_texts:
        raise ValueError("corpus or translations cannot be read; see the limits on this page.")


def embed_figure(figure: Figure, name: str, title: str, choice: str = "") -> Drawing:
    """Make a figure a part of the page; see ``Drawing``."""
    address = f"data:image/svg+xml;base64,{base64.b64encode(draw(figure, 'svg')).decode()}"
    return Drawing(name=name, title=title, image=address, choice=choice)


def _drawing(name: str, finished: FinishedExperiment, rows: Sequence[Row], choice: str = "") -> Drawing:
    return embed_figure(PLOTS[name].plot(rows, finished.styles), f"figure-{name}", FIGURES[name], choice)


def _means(table: Table) -> Table:
    return replace(table, rows=mean_over_seeds(table.rows))


def analyses(finished: FinishedExperiment) -> list[Section]:
    """Make one section per analysis."""
    sections = track(ANALYSES.items(), "report", "parts")
    return [make_section(name, title, make(finished)) for name, (title, make) in sections]


def _learning(finished: FinishedExperiment) -> Iterator[Part]:
    yield _drawing("learning-updates", finished, progress(finished).rows)


def _cost(finished: FinishedExperiment) -> Iterator[Part]:
    rows = cost_points(finished).rows
    if len(finished.budgets) < 2:
        yield "The experiment has one budget: these are validation scores during training."
    for name, title in FIGURES.items():
        if name.split("-")[0] == "cost":
            quality, _, cost = title.partition(" against ")
            choice = cost if quality == "BLEU" else f"{cost} ({quality.lower()})"
            with suppress(ValueError):  # a cost that was not recorded, or no BLEU
                yield _drawing(name, finished, rows, choice)
    table = time_to_quality(rows)
    yield _drawing("time-to-quality", finished, table.rows)  # fails where no level was reached
    yield table


def _pareto(finished: FinishedExperiment) -> Iterator[Part]:
    table = pareto(finished)
    for name in ("pareto-speed", "pareto-size"):
        try:
            yield _drawing(name, finished, table.rows)
        except ValueError as error:
            yield explain(error).capitalize()
    yield table


BARS = ("timed_tokens_per_s", "beam_sentences_per_s", "latency_ms_p50")
"""Columns that are drawn as bars, the speeds that papers report."""
SHOWN = ("label", *SPREADS, "peak_memory_bytes", "cpu_share", "train_s")


def speed(finished: FinishedExperiment) -> Iterator[Part]:
    """Yield bars of ``BARS``, and a table of all speeds that a run has."""
    panels = {}
    for name in BARS:
        bars = {label: _bar(name, runs) for label, runs in finished.labels.items()}
        if any(bars.values()):
            panels[COLUMNS[name].heading] = bars
    if panels:
        caption = "Grey: lowest to highest repeat, or seed if each was timed alone."
        title = "Speed of training and of translation"
        yield embed_figure(bar_plot(panels, finished.styles, caption), "speed-bars", title)
    columns = [
        column
        for name, column in COLUMNS.items()
        if name in ("label", "seeds") or (column.group == "speed" and name not in SPREAD_ENDS)
    ]
    names = ("seed", *(column.name for column in columns), *SPREAD_ENDS)
    results = [run.result.flat() for run in finished.runs]
    rows = mean_over_seeds([{name: row[name] for name in names if name in row} for row in results])
    in_turn = are_timed_together(finished.trained.runs)
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
    """Return the speed of a model with the spread of its repeats, or over seeds if timed one by one."""
    values = [value for run in runs if (value := getattr(run.result, name)) is not None]
    bar, spread = Bar.over(values), timed_spread(runs, name)
    return Bar(bar.value, *spread) if bar and spread else bar


def _plotted(finished: FinishedExperiment, name: str) -> Iterator[Part]:
    """Yield one of ``PLOTS`` that reads the texts, and its table."""
    require_texts(finished)
    table = PLOTS[name].table(finished)
    yield _drawing(name, finished, table.rows)
    yield _means(table)


def _faults(finished: FinishedExperiment) -> Iterator[Part]:
    require_texts(finished)
    yield _means(faults(finished))


ANALYSES: dict[str, tuple[str, Callable[[FinishedExperiment], Iterator[Part]]]] = {
    "cost": ("Quality against the cost of training", _cost),
    "learning-curves": ("Learning curves", _learning),
    "pareto": ("Quality against speed and size", _pareto),
    "speed": ("Speed", speed),
    "lengths": ("Quality by length", partial(_plotted, name="length")),
    "similarity": ("Quality by similarity to the training text", partial(_plotted, name="similarity")),
    "rare-words": ("Rare words", partial(_plotted, name="rare-words")),
    "faults": ("Repetition and length", _faults),
}


# Section on attention as alignment: alignment error rate against gold links, and entropy.


ERRORS = (
    "Alignment errors against the gold links of the test set (Och and Ney 2003), means over seeds. The head "
    "(or mean of heads) and the threshold were chosen on the validation set. The diagonal needs no model."
)
ERROR_COLUMNS = ("label", "seed", "read", "method", "aer", "precision", "recall")
HEADS = (
    "Alignment errors on the validation set, by arg max, for every run. Heads of different seeds are "
    "unrelated."
)
SPREAD = (
    "Entropy of the weights that target words give to source words on the test set, means over seeds: "
    "mean over all heads, narrowest head and widest head. Shares are relative to the highest possible "
    "entropy, the logarithm of the source length."
)


def alignment_section(finished: FinishedExperiment) -> tuple[Section, dict[tuple[str, int], AttentionHead]]:
    """Make the section of alignment errors and entropies; also return the best head of each run."""
    chosen: dict[tuple[str, int], AttentionHead] = {}

    def parts() -> Iterator[Part]:
        require_texts(finished)
        if not all(run.weights.is_file() for run in finished.trained.runs):
            raise ValueError("some runs have no weights.")
        alignment = align_experiment(finished.trained)
        chosen.update(alignment.chosen)
        if alignment.rows:
            yield _error_bars(alignment.rows, finished)
            rows = [{name: row.get(name) for name in ERROR_COLUMNS} for row in alignment.rows]
            yield Table(ERRORS, mean_over_seeds(rows), "Alignment errors")
        else:
            yield "Alignment errors are not shown: the corpus has no gold links."
        if not alignment.spread:
            yield "No model attends to the source."
            return
        if alignment.heads:
            yield Table(HEADS, alignment.heads, "Alignment errors of every head")
        yield Table(SPREAD, mean_over_seeds(alignment.spread), "Entropy of attention")

    return make_section("alignment", "Attention as alignment", parts()), chosen


def _error_bars(rows: Sequence[Row], finished: FinishedExperiment) -> Drawing:
    values: dict[str, list[float]] = {label: [] for label in (*finished.labels, BASELINE)}
    for row in rows:
        if row["method"] in (ARG_MAX, BASELINE) and row["read"] != "mean" and row["aer"] is not None:
            values[row["label"]].append(row["aer"])
    title = "Alignment error rate of each model's best head, by arg max"
    panels = {"alignment error rate (0 is best)": {label: Bar.over(rates) for label, rates in values.items()}}
    styles = finished.styles | {BASELINE: Style(REFERENCE_COLOR)}
    caption = "Grey line: from the lowest to the highest seed. Diagonal: links that need no model."
    return embed_figure(bar_plot(panels, styles, caption), "aer-bars", title)


# Methods: settings, hashes, signatures, machines, and commands to repeat it.


class Methods(NamedTuple):
    """Settings and conditions needed to reproduce the figures."""

    differing: Table
    conditions: list[tuple[str, str]]
    commands: list[str]
    config: str


def methods(finished: FinishedExperiment) -> Methods:
    """Collect the settings of all finished runs and their conditions."""
    models = {label: runs[0].run for label, runs in finished.trained.labels.items()}
    settings = {label: run.settings() for label, run in models.items()}
    names = dict.fromkeys(name for model in settings.values() for name in model if name != "train.seed")
    rows = [
        {"setting": name, **{label: _toml(model.get(name)) for label, model in settings.items()}}
        for name in names
    ]
    systems = [
        {"label": label} | {test: str(runs[0].output(test).absolute()) for test in runs[0].tests}
        for label, runs in finished.labels.items()
        if runs[0].run.is_external
    ]
    experiments = [finished.at_budget(budget) for budget in finished.budgets] or [finished]
    runs = [run.run for experiment in experiments for run in experiment.trained.runs]
    results = [result for experiment in experiments for result in experiment.results]
    folder = finished.folder.resolve().name
    quoted = shlex.quote(f"runs/{folder}")
    return Methods(
        differing=Table(
            "A dash: the model has no such setting.",
            [row for row in rows if len(set(row.values())) > 2],
            "Settings that differ by model",
            layout=[plain_column("setting"), *map(plain_column, settings)],
        ),
        conditions=_conditions(finished),
        commands=[
            *train_commands(f"{folder}.toml", results),
            f"attnbench check {quoted}",
            f"attnbench report {quoted}",
        ],
        config=runs_to_toml(runs, systems) if runs else "",
    )


def _toml(value: Any) -> str:
    return UNKNOWN if value is None else json.dumps(value, ensure_ascii=False)


def _conditions(finished: FinishedExperiment) -> list[tuple[str, str]]:
    pairs = [f"{name} {len(pairs.src):,}" for name, pairs in finished.corpus.splits.items() if pairs.src]
    rows = [run.result.flat() for run in finished.runs]
    conditions = dict(list_conditions(rows))
    conditions |= {"Code of this report": code_version(), "Pairs": ", ".join(pairs)}
    return [(name, value) for name, value in conditions.items() if value]


# Section on tuning: effort and winners of the search, expected best score against trials.


def tuning_section(finished: FinishedExperiment, folder: Path | None) -> Section | None:
    """Make the section on the search in ``folder``, by default that of the experiment, if it has one.

    Raises:
        ValueError: ``folder`` has no trials, or a damaged trials.jsonl.
    """
    if folder is not None:
        read_trials(folder)
    elif not (finished.folder / TRIALS_FILE).exists():
        return None
    return make_section("tuning", "Tuning", _tuning(finished, folder or finished.folder))


def _tuning(finished: FinishedExperiment, folder: Path) -> Iterator[Part]:
    trials = read_trials(folder)
    yield from _tuning_notes(finished, trials)
    yield from _search_differences(finished, folder, trials)
    yield Table(
        "Effort of the search, and the best trial of each model.", summarize(trials), "Trials and winners"
    )
    curve = tuning_curve(trials)
    yield _drawing("tuning", finished, curve.rows)
    yield curve


def _tuning_notes(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> Iterator[str]:
    if len({row["trials"] for row in summarize(trials)}) > 1:
        yield "The search has not ended: models have different numbers of trials, so compare with care."
    else:
        yield "Every model got the same random draws; the validation set alone decided."
    winners = find_winners(trials)
    for label, runs in finished.trained.labels.items():
        settings = runs[0].run.model.settings()
        winner = winners.get(label)
        if winner is None:
            searched = any(trial.label == label for trial in trials)
            reason = "all of its trials failed" if searched else "it was not searched"
            yield f"{label}: {reason}, so its settings are not tuned."
        elif other := [name for name, value in winner.settings.items() if settings.get(name) != value]:
            differences = ", ".join(
                f"{name} {settings.get(name)} (best trial: {winner.settings[name]})" for name in other
            )
            yield f"{label} does not have the settings of its best trial: {differences}."


def _search_differences(
    finished: FinishedExperiment, folder: Path, trials: Sequence[TrialResult]
) -> Iterator[str]:
    run, searched = shared_settings(finished.runs[0].run), dict[str, Any]()
    if (folder / BEST).is_file():
        experiment = load_experiment(folder / BEST)
        searched = shared_settings(resolve_models(experiment, BEST, other_machine=True)[0])
        if experiment.train.precision == "auto":  # that of the machine which searched
            del searched["train.precision"]
        if not experiment.budget.amount:  # that of the reference model, which the runs name
            del searched["budget.amount"]
    else:
        yield f"The shared settings of the trials are unknown: the search has no {BEST}."
    searched |= {"train.max_updates": max(trial.updates for trial in trials), "train.patience": 0}
    other = [
        f"{name} {value} (here {run[name]})"
        for name, value in searched.items()
        if name in run and run[name] != value
    ]
    if other:
        yield f"Settings of the trials differ from those of the runs: {', '.join(other)}."
    for label, winner in find_winners(trials).items():
        for name, value in winner.settings.items():
            drawn = {trial.settings[name] for trial in trials if trial.label == label}
            if isinstance(value, int | float) and len(drawn) > 2 and value in (min(drawn), max(drawn)):
                end = "highest" if value == max(drawn) else "lowest"
                yield f"{label}: its best trial has the {end} {name} of all trials."
