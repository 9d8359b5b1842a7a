"""Methods section of the report, and its section on tuning."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.tables import Table
from compare.analysis.tuning import tuning_curve
from compare.config.run import Run, runs_to_toml
from compare.experiment.tune import TRIALS, TrialResult, find_winners, read_trials, summarize
from compare.report.conditions import distinct, list_conditions
from compare.report.html.parts import Cell, ColumnHeading, HtmlTable, Section, cell, embed_figure, html_table
from compare.report.loaded_experiment import LoadedExperiment
from compare.report.plots import by_label, tuning_plot
from compare.results.column import Row
from compare.results.columns import COLUMNS
from compare.results.text import format_number
from compare.scoring.metrics import METRICS, Metric, MetricOptions
from compare.system.messages import explain
from compare.system.plugins import code_version
from compare.training.serialization import FINAL

# Methods section of the report: settings, hashes, signatures, machines, and commands to repeat it.


Settings = dict[str, Any]
"""Settings by "section.key"."""


@dataclass(frozen=True, kw_only=True)
class MethodsSection:
    """Settings and conditions needed to reproduce the figures."""

    shared: HtmlTable
    differing: HtmlTable | None
    hashes: HtmlTable
    conditions: Sequence[tuple[str, str]]
    """Conditions of the figures as (name, value)."""
    commands: Sequence[str]
    config: str
    """The experiment as TOML."""


def methods(loaded: LoadedExperiment) -> MethodsSection:
    """Collect the settings of all finished runs and their conditions."""
    runs = loaded.finished.runs
    first_runs = {label: runs[0] for label, runs in loaded.finished.labels.items()}
    settings = {label: _settings(run.run) for label, run in first_runs.items()}
    names = list(dict.fromkeys(name for model in settings.values() for name in model))
    same = [name for name in names if len({repr(model.get(name)) for model in settings.values()}) == 1]
    different = [name for name in names if name not in same]
    return MethodsSection(
        shared=_shared(settings, same),
        differing=_differing(settings, different) if different else None,
        hashes=_hashes(runs),
        conditions=_conditions(loaded),
        commands=_commands(loaded),
        config=runs_to_toml([runs[0].run for runs in loaded.finished.labels.values()]),
    )


def _settings(run: Run) -> Settings:
    """List the settings of one run except its seed; those of the model are "model.<key>"."""
    return {name: value for name, value in run.settings().items() if name != "train.seed"}


def _shared(settings: Mapping[str, Settings], names: Sequence[str]) -> HtmlTable:
    """Build the table of the settings ``names``, which are the same for all models."""
    first = next(iter(settings.values()))
    rows = [[Cell(text=name), _setting(first[name])] for name in names]
    heads = [ColumnHeading(text="setting"), ColumnHeading(text="value")]
    return HtmlTable(title="Settings of all models, except the seed", caption="", heads=heads, rows=rows)


def _differing(settings: Mapping[str, Settings], names: Sequence[str]) -> HtmlTable:
    """Build the table of the settings ``names``, one column per model."""
    rows = [[Cell(text=name), *(_setting(model.get(name)) for model in settings.values())] for name in names]
    caption = "A dash: the model has no such setting."
    heads = [ColumnHeading(text=text) for text in ("setting", *settings)]
    return HtmlTable(title="Settings that differ by model", caption=caption, heads=heads, rows=rows)


def _setting(value: Any) -> Cell:
    """Format a setting as in a TOML file."""
    return Cell(text="–" if value is None else json.dumps(value, ensure_ascii=False))


def _hashes(runs: Sequence[FinishedRun]) -> HtmlTable:
    """Build the table of hashes, one row per run."""
    data, batches, config, code = (
        COLUMNS[name].heading for name in ("data_hash", "batch_hash", "config_hash", "code_version")
    )
    heads = ["run", data, batches, config, "weights", code]
    rows = []
    for run in runs:
        row = run.result
        weights = row.files.get(f"checkpoints/{FINAL}")
        values = [row.data_hash, row.batch_hash, row.config_hash, weights, row.code_version]
        rows.append([Cell(text=f"{row.label}, seed {row.seed}"), *(cell(value) for value in values)])
    title = "Hashes (sha256) of the inputs and weights of each run"
    return HtmlTable(title=title, caption="", heads=[ColumnHeading(text=text) for text in heads], rows=rows)


def _conditions(loaded: LoadedExperiment) -> list[tuple[str, str]]:
    """List the known conditions of the figures as (name, value)."""
    rows = [run.result.flat() for run in loaded.finished.runs]
    conditions = dict(list_conditions(rows))
    signatures = {
        metric.heading: _signature(metric, rows) for name, metric in METRICS.items() if distinct(rows, name)
    }
    splits = loaded.finished.corpus.splits.items()
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


def _commands(loaded: LoadedExperiment) -> list[str]:
    """List the commands that repeat the experiment, its check and its report."""
    name, seeds = loaded.finished.folder.resolve().name, dict.fromkeys(row.seed for row in loaded.rows)
    folder = shlex.quote(f"runs/{name}")
    return [
        f"attnbench run {shlex.quote(f'{name}.toml')} --seeds {','.join(map(str, seeds))}",
        f"attnbench check {folder}",
        f"attnbench report {folder}",
    ]


# Section on tuning: effort and winners of the search, expected best score against trials.


NAME, HEADING = "tuning", "Tuning"


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
            return _section(finished, read_trials(finished.folder))
        except (OSError, ValueError) as error:
            return Section(name=NAME, title=HEADING, notes=[f"Not made: {explain(error)}"])
    trials = read_trials(folder)
    if not trials:
        raise ValueError(f"{folder / TRIALS} holds no trials: let attnbench tune end some")
    return _section(finished, trials)


def _section(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> Section:
    if not trials:
        return Section(name=NAME, title=HEADING, notes=["No trial has ended."])
    curve = tuning_curve(trials)
    title = "Expected best validation BLEU against number of trials"
    ends = {label: (rows[0], rows[-1]) for label, rows in by_label(curve.rows).items()}
    changes = "; ".join(
        f"{label} " + " to ".join(format_number(row["expected_bleu"]) for row in pair)
        for label, pair in ends.items()
    )
    drawing = embed_figure(
        tuning_plot(curve.rows), NAME, title, f"From one trial to all, without replacement: {changes}."
    )
    effort = Table("Effort of the search, and the best trial of each model.", summarize(trials))
    return Section(
        name=NAME,
        title=HEADING,
        notes=_notes(finished, trials),
        drawings=[drawing],
        grids=[html_table(effort, "Trials and winners"), html_table(curve, title)],
    )


def _have_equal_effort(trials: Sequence[TrialResult]) -> bool:
    """Return whether trials of one number have equal settings, and all that ended well equal updates."""
    draws = {(trial.trial, tuple(sorted(trial.settings.items()))) for trial in trials}
    updates = {trial.updates for trial in trials if trial.status == "done"}
    return len(draws) == len({trial.trial for trial in trials}) and len(updates) <= 1


def _notes(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> list[str]:
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
