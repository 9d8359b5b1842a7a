"""Result table of the page, one row per model that unfolds into one per run, and its significance tests."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

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
from compare.analysis.intervals import ScoredTestSet, check_label, match_runs
from compare.analysis.tables import Table, plain_column
from compare.report.html.sections import Section
from compare.report.table import render_table
from compare.results.columns import (
    COLUMNS,
    INTERVALS,
    PRIMARY,
    Column,
    Group,
    Shown,
    bleu_interval_column,
    external_columns,
    score_column,
    text_columns,
)
from compare.results.store import Result
from compare.results.text import UNKNOWN
from compare.scoring.metrics import METRICS

# Section on significance: paired tests of every two models as matrices, and the choice of a baseline.


NAME, TITLE = "significance", "Significance"
MOST_COMPARISONS = 1_000
"""Maximum number of comparisons, 10 minutes for 3 seeds and 1,000 sentences.

If there are more, one model is compared with each of the others.
"""
TRIALS = 10_000
"""Trials per test; more if so many models are compared that none could be significant with these."""


def choose_reference(finished: FinishedExperiment, baseline: str) -> str:
    """Return the model to compare the others with: ``baseline``, or if empty, the highest ``mean_bleu``.

    Raises:
        ValueError: no finished model has that label.
    """
    labels = finished.labels
    if baseline:
        check_label(baseline, labels)
    means = mean_bleu(finished)
    return baseline or max(means, key=lambda label: means[label])


def run_comparisons(scored: Mapping[str, ScoredTestSet], reference: str) -> list[Comparison]:
    """Compare all pairs of models; if that would take too long, ``reference`` with each other model."""
    pairs = len(match_runs(scored))
    baseline = reference if pairs > MOST_COMPARISONS else None
    return compare_models(scored, baseline=baseline, trials=max(TRIALS, round(pairs / ALPHA)))


def significance(comparisons: Sequence[Comparison], labels: Sequence[str], smallest: str = "") -> Section:
    """Make the section: a matrix per test set and metric if all pairs were compared, and every comparison.

    Args:
        comparisons: all that were made together.
        labels: the models in the order of the table.
        smallest: the smallest differences that could have been found, in words; may be empty.
    """
    if not comparisons:
        return Section(name=NAME, title=TITLE, notes=["No two models share a seed: nothing is compared."])
    notes = [
        "One model beats another only where approximate randomisation over all seeds together gives "
        f"p < {ALPHA} after Holm's correction for all {len(comparisons)} comparisons on this page, and the "
        "combined 95% interval, which is not corrected, excludes 0, and no run of either failed. BLEU and "
        "chrF are compared, other scores only shown."
    ]
    if smallest:
        several = any(len(comparison.seeds) > 1 for comparison in comparisons)
        scope = "median over pairs of models" + ("" if several else ", these very seeds")
        notes.append(
            "Smallest true difference that would have been found with a probability of "
            f"{POWER:.0%}: {smallest} ({scope})."
        )
    details = _details(comparisons)
    known = [label for label in labels if any(label in (each.first, each.second) for each in comparisons)]
    if len(known) > 2 and len({comparison.second for comparison in comparisons}) == 1:
        few = "Only one model is compared with each other: all pairs are too many, or share no seed."
        return Section(name=NAME, title=TITLE, notes=[few, *notes], tables=[details])
    how = (
        "The model of the row minus that of the column, means over the seeds both have. ▲ the row's model "
        f"beats the column's, ▼ is beaten by it, △ ▽ {ONE_SEED}; no mark: not shown to differ."
    )
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.metric, comparison.test), []).append(comparison)
    matrices = [
        Table(
            "",
            [{"label": label} for label in known],
            f"Differences in {METRICS[metric].heading} on {test}",
            layout=[
                plain_column("label", "model"),
                *(VerdictColumn.of(label, group, label, in_matrix=True) for label in known),
            ],
        )
        for (metric, test), group in groups.items()
    ]
    return Section(name=NAME, title=TITLE, notes=[how, *notes], tables=[*matrices, details])


def _details(comparisons: Sequence[Comparison]) -> Table:
    """Make the table of every comparison, with each interval merged into one column."""
    rows = [
        comparison.row
        | {"metric": METRICS[comparison.metric].heading}
        | {
            f"{kind.replace('_', ' ')} 95%": interval and f"{interval.low:.2f} to {interval.high:.2f}"
            for kind, interval in comparison.intervals._asdict().items()
        }
        for comparison in comparisons
    ]
    names = ["test", "metric", "model", "against", "seeds", "difference"]
    names += [f"{kind.replace('_', ' ')} 95%" for kind in INTERVALS]
    names += ["p_randomisation", "p_bootstrap", "p_holm"]
    names += ["sentences_won", "sentences_lost", "sentences_tied", "verdict"]
    optional = {"seeds", "seeds 95%", "p randomisation", "p bootstrap"}
    optional |= {"sentences won", "sentences lost", "sentences tied"}
    if any(comparison.intervals.combined for comparison in comparisons):
        optional.add("test set 95%")
    return Table(
        "The difference with its three intervals, p-values (randomisation, bootstrap, and the first by "
        "Holm), sentences won, lost and tied by chrF, and the verdict.",
        [{name: row[name] for name in names} for row in rows],
        "Every comparison",
        optional=optional,
    )


@dataclass(frozen=True)
class VerdictColumn(Column):
    """Comparisons of the model of each row with one other, sorted by the difference."""

    _: KW_ONLY
    other: str
    """Label of the other model."""
    sides: Mapping[str, Comparison]
    """By the label of the row's model, which is the first."""
    in_matrix: bool
    """Whether it is a column of the matrix of all models, not of the result table."""

    @classmethod
    def of(
        cls, other: str, comparisons: Sequence[Comparison], heading: str, *, in_matrix: bool = False
    ) -> "VerdictColumn":
        """Make the column from the comparisons on one test set by one metric."""
        sides = {
            first: found[other] for first, found in comparison_matrix(comparisons).items() if other in found
        }
        return cls(heading, heading, Group.QUALITY, other=other, sides=sides, in_matrix=in_matrix)

    def text(self, row: Mapping[str, Any]) -> str:
        """Return the difference, its p-value, and the mark of the verdict."""
        side = self.sides.get(row["label"])
        if side is not None:
            return verdict(side)
        own, missing = ("", "not tested") if self.in_matrix else ("itself", UNKNOWN)
        return own if row["label"] == self.other else missing

    def order(self, row: Mapping[str, Any]) -> float | None:
        """Return the difference; in the result table 0 for the model itself."""
        side = self.sides.get(row["label"])
        if side is not None:
            return side.difference
        return 0.0 if row["label"] == self.other and not self.in_matrix else None


def verdict(side: Comparison) -> str:
    """Format a comparison: ▲ wins, ▼ loses, △ ▽ the same for one seed, else without a mark."""
    marks = "▲▼" if side.inconclusive_reason is None else "△▽" if side.inconclusive_reason == ONE_SEED else ""
    mark = f"{marks[side.difference < 0]} " if marks else ""
    difference = f"{side.difference:+.1f}".replace("-", "−")
    return f"{mark}{difference} ({describe_p(side.p)})"


# Columns of the report's result table.


DEFAULT = ("params", "length_ratio", "train_tokens_per_s", "beam_sentences_per_s", "train_s", "status")
"""Columns that are shown without being chosen, beside BLEU, its widest interval, the verdict and chrF.

They are so many that the table fits 1280 pixels.
"""


def columns_of(
    finished: FinishedExperiment, comparisons: Sequence[Comparison], reference: str
) -> list[tuple[Column, bool]]:
    """List the columns in which any run has a value, and whether each is shown without being chosen.

    Args:
        finished: the experiment.
        comparisons: all comparisons; may be empty.
        reference: label of the model that the others are compared with.
    """
    rows = [run.result.flat() for run in finished.runs]
    several = any(len(runs) > 1 for runs in finished.labels.values())
    kinds = ["test_set"] if not several else ["test_set", "seeds"] if finished.no_texts else list(INTERVALS)
    first, *further = finished.corpus.tests

    def verdicts(test: str, heading: str) -> VerdictColumn:
        of_test = [each for each in comparisons if (each.test, each.metric) == (test, PRIMARY)]
        return VerdictColumn.of(reference, of_test, heading)

    columns = [score_column(PRIMARY), *map(bleu_interval_column, kinds)]
    columns.append(verdicts(first, f"against {reference}"))
    at_once = [columns[0], *columns[-2:], score_column("chrf"), *(COLUMNS[name] for name in DEFAULT)]
    columns += [score_column(metric) for metric in METRICS if metric != PRIMARY]
    columns += external_columns(name for row in rows for name in row)
    for test in further:
        columns += [score_column(PRIMARY, test), bleu_interval_column(kinds[-1], test), *text_columns(test)]
        columns.append(verdicts(test, f"{test} against {reference}"))
    columns += [
        column
        for column in COLUMNS.values()
        if column.group is not Group.IDENTITY and column.shown is not Shown.NEVER
    ]
    if any(result.status != "done" for result in finished.results):
        columns.append(COLUMNS["status"])
    known = {name for row in rows for name, value in row.items() if value is not None}
    return [
        (column, column in at_once)
        for column in columns
        if (column.sides if isinstance(column, VerdictColumn) else column.name in known)
    ]


# Result table of the page: one row per model, which unfolds into one row per run.


def result_table(
    finished: FinishedExperiment,
    scored: Mapping[str, ScoredTestSet],
    comparisons: Sequence[Comparison],
    reference: str,
) -> Table:
    """Build the result table, whose rows hold the rows of their runs as "runs".

    Args:
        finished: the experiment.
        scored: its test sets; empty where the texts cannot be read.
        comparisons: all comparisons; empty where nothing is compared.
        reference: model that the others are compared with.
    """
    frame = aggregate_seeds(finished, scored)
    runs = [run.result for run in finished.runs]
    means = {row["label"]: row for row in json.loads(render_table(frame, "json", runs=runs))}  # no NaN
    groups: dict[str, list[Result]] = {}
    for result in finished.results:
        groups.setdefault(result.label, []).append(result)
    rows = [
        {
            **means.get(label, {}),
            "label": label,
            "status": _status(results),
            "runs": [{**result.flat(), "label": None} for result in results],
        }
        for label, results in groups.items()
    ]
    columns = columns_of(finished, comparisons, reference)
    return Table(
        "",
        rows,
        layout=[column for column, _ in columns],
        optional={column.heading for column, at_once in columns if not at_once},
    )


def _status(results: Sequence[Result]) -> str:
    """Count the finished runs of a model, and list the status of the others."""
    others = [COLUMNS["status"].text(result.flat()) for result in results if result.status != "done"]
    if len(results) == 1 or not others:
        return others[0] if others else "done"
    return "; ".join([f"{len(results) - len(others)} of {len(results)} done", *dict.fromkeys(others)])
