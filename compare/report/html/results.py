"""Result table of the page, one row per model that unfolds into one per run, and its significance tests."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple

from compare.analysis.comparison import (
    ALPHA,
    ONE_SEED,
    POWER,
    Comparison,
    aggregate_seeds,
    compare_models,
    comparison_matrix,
    describe_p,
    mean_bleu,
)
from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.intervals import ScoredTestSet, match_runs
from compare.analysis.tables import Row, Table
from compare.report.html.parts import Cell, ColumnHeading, HtmlTable, html_table, signed
from compare.report.loaded_experiment import LoadedExperiment
from compare.report.table import render_table
from compare.results.column import Column, Group, Shown
from compare.results.columns import (
    COLUMNS,
    INTERVALS,
    PRIMARY,
    bleu_interval_column,
    external_columns,
    score_column,
    text_columns,
)
from compare.results.store import Result
from compare.results.text import UNKNOWN
from compare.scoring.metrics import METRICS

# Section on significance: paired tests of every two models as matrices, and the choice of a baseline.


MOST_COMPARISONS = 1_000
"""Maximum number of comparisons, 10 minutes for 3 seeds and 1,000 sentences.

If there are more, one model is compared with each of the others.
"""
TRIALS = 10_000
"""Trials per test; more if so many models are compared that none could be significant with these."""
DETAILS = (
    "seeds",
    "seeds 95%",
    "p_randomisation",
    "p_bootstrap",
    *(f"sentences_{end}" for end in ("won", "lost", "tied")),
)
"""Columns of the table of every comparison that are shown only once they are chosen."""


@dataclass(frozen=True, kw_only=True)
class SignificanceSection:
    """Results of the paired tests."""

    notes: Sequence[str]
    matrices: Sequence[HtmlTable] = ()
    """Per test set and metric, one row and one column per model; empty unless all pairs were compared."""
    details: HtmlTable | None = None
    """One row per comparison."""


def choose_reference(finished: FinishedExperiment, baseline: str) -> str:
    """Return the model to compare the others with: ``baseline``, or if empty, the highest ``mean_bleu``.

    Raises:
        ValueError: no finished model has that label.
    """
    labels = finished.labels
    if baseline and baseline not in labels:
        near = get_close_matches(baseline, labels, n=1) or list(labels)
        raise ValueError(f"no finished model is labelled {baseline!r}; did you mean {near[0]!r}?")
    means = mean_bleu(finished)
    return baseline or max(means, key=lambda label: means[label])


def run_comparisons(scored: Mapping[str, ScoredTestSet], reference: str) -> list[Comparison]:
    """Compare all pairs of models; if that would take too long, ``reference`` with each other model."""
    pairs = len(match_runs(scored))
    baseline = reference if pairs > MOST_COMPARISONS else None
    return compare_models(scored, baseline=baseline, trials=max(TRIALS, round(pairs / ALPHA)))


def significance(
    comparisons: Sequence[Comparison], labels: Sequence[str], smallest: str = ""
) -> SignificanceSection:
    """Build the section.

    Args:
        comparisons: all that were made together.
        labels: the models in the order of the table.
        smallest: the smallest differences that could have been found, in words; may be empty.
    """
    if not comparisons:
        return SignificanceSection(notes=["No two models share a seed: nothing is compared."])
    rule = (
        "One model beats another only where approximate randomisation over all seeds together gives "
        f"p < {ALPHA} after Holm's correction for all {len(comparisons)} comparisons on this page, and the "
        "combined 95% interval, which is not corrected, excludes 0, and no run of either failed. BLEU and "
        "chrF are compared, other scores only shown."
    )
    notes = [rule]
    if smallest:
        several = any(len(comparison.seeds) > 1 for comparison in comparisons)
        scope = "median over pairs of models" + ("" if several else ", these very seeds")
        notes.append(
            "Smallest true difference that would have been found with a probability of "
            f"{POWER:.0%}: {smallest} ({scope})."
        )
    table = Table(
        "The difference with its three intervals, p-values (randomisation, bootstrap, and the first by "
        "Holm), sentences won, lost and tied by chrF, and the verdict.",
        [_readable(comparison.row) for comparison in comparisons],
    )
    combined = any(row.get("combined 95%") for row in table.rows)
    details = html_table(
        table, "Every comparison", optional={*DETAILS, *(["test set 95%"] if combined else [])}
    )
    known = [label for label in labels if any(label in (each.first, each.second) for each in comparisons)]
    if len(known) > 2 and len({comparison.second for comparison in comparisons}) == 1:
        few = "Only one model is compared with each other: all pairs are too many, or share no seed."
        return SignificanceSection(notes=[few, *notes], details=details)
    how = (
        "The model of the row minus that of the column, means over the seeds both have. ▲ the row's model "
        f"beats the column's, ▼ is beaten by it, △ ▽ {ONE_SEED}; no mark: not shown to differ."
    )
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.metric, comparison.test), []).append(comparison)
    matrices = [_matrix(key, comparison_matrix(group), known) for key, group in groups.items()]
    return SignificanceSection(notes=[how, *notes], matrices=matrices, details=details)


def _readable(row: Row) -> Row:
    """Return a comparison's row with each interval merged into one column, and the metric's heading."""
    found: Row = {}
    for name, value in row.items():
        if name.endswith("_low"):
            kind = name.removeprefix("difference_").removesuffix("_low").replace("_", " ")
            high = row[name.replace("_low", "_high")]
            found[f"{kind} 95%"] = None if value is None else f"{value:.2f} to {high:.2f}"
        elif not name.endswith("_high"):
            found[name] = METRICS[value].heading if name == "metric" else value
    return found


def _matrix(
    key: tuple[str, str], sides: Mapping[str, Mapping[str, Comparison]], labels: Sequence[str]
) -> HtmlTable:
    """Build the matrix of a metric and a test set."""
    metric, test = key
    rows = [
        [Cell(text=first), *(_cell(sides.get(first, {}).get(second), first == second) for second in labels)]
        for first in labels
    ]
    heads = [ColumnHeading(text="model"), *(ColumnHeading(text=label, numeric=True) for label in labels)]
    title = f"Differences in {METRICS[metric].heading} on {test}"
    return HtmlTable(title=title, caption="", heads=heads, rows=rows)


def _cell(side: Comparison | None, itself: bool) -> Cell:
    return verdict(side) if side else Cell(text="" if itself else "not tested")


def verdict(side: Comparison) -> Cell:
    """Return the cell of a comparison: ▲ wins, ▼ loses, △ ▽ the same for one seed, else without a mark."""
    marks = "▲▼" if side.inconclusive_reason is None else "△▽" if side.inconclusive_reason == ONE_SEED else ""
    mark = f"{marks[side.difference < 0]} " if marks else ""
    return Cell(
        text=f"{mark}{signed(side.difference)} ({describe_p(side.p)})",
        order=side.difference,
        title=f"{side.first} against {side.second}: {side.row['verdict']}",
    )


# Columns of the report's result table.


DEFAULT = (
    PRIMARY,
    "chrf",
    "params",
    "length_ratio",
    "train_tokens_per_s",
    "beam_sentences_per_s",
    "train_s",
)
"""Columns that are shown without being chosen, beside the interval, the verdict and the end of training: so
many that the table fits 1280 pixels."""


class ReportColumn(NamedTuple):
    """A column of the result table."""

    head: ColumnHeading
    cell: Callable[[Row], Cell]

    def shown_if(self, shown: bool) -> "ReportColumn":
        """Return the column, shown at once or only once the reader has chosen it."""
        return self._replace(head=replace(self.head, optional=not shown))


def report_column(column: Column, rows: Sequence[Row], note: str = "") -> ReportColumn:
    """Convert a column of result tables.

    Args:
        column: the column.
        rows: rows of the table, which tell whether the column is sorted by number.
        note: remark before the column's help.
    """
    numeric = any(column.order(row) is not None for row in rows)
    hint = "; ".join(filter(None, [note, column.help]))
    return ReportColumn(
        ColumnHeading(text=column.heading, hint=hint, numeric=numeric, optional=column.name not in DEFAULT),
        lambda row: Cell(text=column.text(row), order=column.order(row)),
    )


def columns_of(
    loaded: LoadedExperiment, texts: bool, comparisons: Sequence[Comparison], reference: str
) -> list[ReportColumn]:
    """List the columns in which any run of an experiment has a value.

    Args:
        loaded: the experiment.
        texts: whether there are translations, and so intervals over sentences.
        comparisons: all comparisons; may be empty.
        reference: label of the model that the others are compared with.
    """
    rows: list[Row] = [run.result.flat() for run in loaded.finished.runs]
    several = any(len(runs) > 1 for runs in loaded.finished.labels.values())
    kinds = ["test_set"] if not several else list(INTERVALS) if texts else ["test_set", "seeds"]
    first, *further = loaded.finished.corpus.tests
    note = f"on {first}, mean ± standard deviation"
    columns = []
    if translated := _is_known(score_column(PRIMARY), rows):
        columns = [report_column(score_column(PRIMARY), rows, note)]
        columns += [_bleu_interval(kind).shown_if(kind == kinds[-1]) for kind in kinds]
    columns += _verdicts(comparisons, first, f"against {reference}", reference)
    scores = [score_column(metric) for metric in METRICS if metric != PRIMARY]
    columns += [report_column(column, rows, f"on {first}") for column in scores if _is_known(column, rows)]
    columns += [
        report_column(column, rows) for column in external_columns(name for row in rows for name in row)
    ]
    for test in further:
        if translated:
            columns.append(report_column(score_column(PRIMARY, test), rows))
            columns.append(_bleu_interval(kinds[-1], test).shown_if(False))
        columns += [report_column(each, rows) for each in text_columns(test) if _is_known(each, rows)]
        against = _verdicts(comparisons, test, f"{test} against {reference}", reference)
        columns += [column.shown_if(False) for column in against]
    columns += [
        report_column(column, rows)
        for column in COLUMNS.values()
        if column.group is not Group.IDENTITY and column.shown is not Shown.NEVER and _is_known(column, rows)
    ]
    if any(result.status != "done" for result in loaded.rows):
        columns.append(report_column(COLUMNS["status"], rows).shown_if(True))
    return columns


def _is_known(column: Column, rows: Sequence[Row]) -> bool:
    """Return whether any row has a value in ``column``."""
    return any(row.get(column.name) is not None for row in rows)


def _bleu_interval(kind: str, test: str = "") -> ReportColumn:
    """Return the column of an interval, which is sorted as numbers even where no run has one."""
    column = bleu_interval_column(kind, test)
    heading = ColumnHeading(text=column.heading, hint="" if test else column.help, numeric=True)
    return ReportColumn(heading, lambda row: Cell(text=column.text(row), order=column.order(row)))


def _verdicts(
    comparisons: Sequence[Comparison], test: str, title: str, reference: str
) -> Iterator[ReportColumn]:
    """Yield the column that compares each model with the reference by ``PRIMARY`` on a test set, if any."""
    of_test = [each for each in comparisons if (each.test, each.metric) == (test, PRIMARY)]
    against = comparison_matrix(of_test).get(reference, {})

    def cell(row: Row) -> Cell:
        if row["label"] == reference:
            return Cell(text="itself", order=0.0)
        comparison = against.get(row["label"])
        return verdict(comparison.swapped()) if comparison else Cell(text=UNKNOWN)

    if against:
        yield ReportColumn(ColumnHeading(text=title, numeric=True), cell)


# Result table of the page: one row per model, which unfolds into one row per run.


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
