"""Methods section of the report: settings, hashes, signatures, machines, and commands to repeat it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare.analysis.finished_experiment import FinishedRun
from compare.config.run import Run, runs_to_toml
from compare.report.conditions import distinct, list_conditions
from compare.report.html.parts import Cell, ColumnHeading, HtmlTable, cell
from compare.report.loaded_experiment import LoadedExperiment
from compare.results.column import Row
from compare.results.columns import COLUMNS
from compare.scoring.metrics import METRICS, Metric, MetricOptions
from compare.system.version import code_version
from compare.training.file_names import FINAL

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
