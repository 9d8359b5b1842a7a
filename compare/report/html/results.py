"""The result table of the page: a row a model, which unfolds into a row a run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compare.analysis.seed_means import mean_over_seeds
from compare.analysis.significance.aggregate import aggregate_seeds
from compare.analysis.significance.comparison import Comparison
from compare.analysis.significance.scored_tests import ScoredTestSet
from compare.analysis.table import Row, Table
from compare.report.html.columns import columns_of
from compare.report.html.load import LoadedExperiment
from compare.report.html.parts import Cell, ColumnHeading
from compare.report.tables.table import render_table
from compare.results.store import Result


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model in the result table."""

    label: str
    cells: Sequence[Cell]
    """Means over its finished runs."""
    runs: Sequence[tuple[str, Sequence[Cell]]]
    """What each run is called, and its cells."""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """The models of an experiment."""

    heads: Sequence[ColumnHeading]
    rows: Sequence[ModelRow]
    reference: str
    """The model that the others are set against; empty where nothing is compared."""


def result_table(
    loaded: LoadedExperiment,
    scored: Mapping[str, ScoredTestSet],
    sides: Mapping[str, Mapping[str, Comparison]],
    reference: str,
) -> ResultTable:
    """Put together what is known of every model.

    Args:
        loaded: the experiment.
        scored: its test sets; none where the texts are gone.
        sides: comparisons by both labels, as ``matrix`` gives them.
        reference: the model that the others are set against.
    """
    means = {row["label"]: row for row in _means(loaded, scored)}
    columns = columns_of(loaded, bool(scored), sides.get(reference, {}), reference)
    rows = []
    for label in loaded.labels:
        own = [row for row in loaded.rows if row.label == label]
        mean = {**means.get(label, {}), "label": label, "status": _status(own)}
        runs = [(f"seed {row.seed}", {**row.flat(), "label": None, "status": _status([row])}) for row in own]
        rows.append(
            ModelRow(
                label=label,
                cells=[column.cell(mean) for column in columns],
                runs=[(name, [column.cell(run) for column in columns]) for name, run in runs],
            )
        )
    shown = reference if sides else ""
    return ResultTable(heads=[column.head for column in columns], rows=rows, reference=shown)


def _means(loaded: LoadedExperiment, scored: Mapping[str, ScoredTestSet]) -> list[Row]:
    """One row a label; without texts there are no intervals."""
    if scored:
        known: list[Row] = json.loads(
            render_table(aggregate_seeds(loaded.finished, scored), "json")
        )  # None, not NaN
        return known
    rows = [run.result.flat() for run in loaded.finished.runs]
    figures = [
        {name: value for name, value in row.items() if name == "label" or not isinstance(value, str)}
        for row in rows
    ]
    return list(mean_over_seeds(Table("", figures)).rows)


def _status(rows: Sequence[Result]) -> str:
    """How many of a model's runs ended as they should, and what befell the others."""
    troubles = [
        f"{row.status}: {row.reason}" if row.reason else row.status for row in rows if row.status != "done"
    ]
    done = f"{len(rows) - len(troubles)} of {len(rows)} done"
    if len(rows) == 1 or not troubles:
        return troubles[0] if troubles else "done"
    return "; ".join([done, *dict.fromkeys(troubles)])
