"""Result table of the page: one row per model, which unfolds into one row per run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compare.analysis.significance.aggregate import aggregate_seeds
from compare.analysis.significance.comparison import Comparison
from compare.analysis.significance.scored_tests import ScoredTestSet
from compare.analysis.table import Row
from compare.report.html.columns import columns_of
from compare.report.html.parts import Cell, ColumnHeading
from compare.report.loaded_experiment import LoadedExperiment
from compare.report.tables.table import render_table
from compare.results.columns import COLUMNS
from compare.results.store import Result


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model in the result table."""

    label: str
    cells: Sequence[Cell]
    """Means over its finished runs."""
    runs: Sequence[tuple[str, Sequence[Cell]]]
    """Name and cells of each run."""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """The models of an experiment."""

    heads: Sequence[ColumnHeading]
    rows: Sequence[ModelRow]
    reference: str
    """Model that the others are compared with; empty where nothing is compared."""


def result_table(
    loaded: LoadedExperiment,
    scored: Mapping[str, ScoredTestSet],
    comparisons: Sequence[Comparison],
    reference: str,
) -> ResultTable:
    """Build the result table.

    Args:
        loaded: the experiment.
        scored: its test sets; empty where the texts cannot be read.
        comparisons: all comparisons; empty where nothing is compared.
        reference: model that the others are compared with.
    """
    means = {row["label"]: row for row in _means(loaded, scored)}
    columns = columns_of(loaded, bool(scored), comparisons, reference)
    rows = []
    for label in loaded.labels:
        results = [result for result in loaded.rows if result.label == label]
        mean = {**means.get(label, {}), "label": label, "status": _status(results)}
        runs = [(f"seed {result.seed}", {**result.flat(), "label": None}) for result in results]
        rows.append(
            ModelRow(
                label=label,
                cells=[column.cell(mean) for column in columns],
                runs=[(name, [column.cell(run) for column in columns]) for name, run in runs],
            )
        )
    return ResultTable(
        heads=[column.head for column in columns], rows=rows, reference=reference if comparisons else ""
    )


def _means(loaded: LoadedExperiment, scored: Mapping[str, ScoredTestSet]) -> list[Row]:
    """Return one row per label."""
    frame = aggregate_seeds(loaded.finished, scored)
    runs = [run.result for run in loaded.finished.runs]
    means: list[Row] = json.loads(render_table(frame, "json", runs=runs))  # with None instead of NaN
    return means


def _status(results: Sequence[Result]) -> str:
    """Count the finished runs of a model, and list the status of the others."""
    others = [COLUMNS["status"].text(result.flat()) for result in results if result.status != "done"]
    if len(results) == 1 or not others:
        return others[0] if others else "done"
    return "; ".join([f"{len(results) - len(others)} of {len(results)} done", *dict.fromkeys(others)])
