"""Section on significance: paired tests of every two models as a matrix, and the choice of a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.significance.compare_models import compare_models
from compare.analysis.significance.comparison import ALPHA, Comparison, comparison_matrix, describe_p
from compare.analysis.significance.scored_tests import ScoredTestSet
from compare.analysis.table import Row, Table
from compare.report.html.parts import Cell, ColumnHeading, HtmlTable, html_table, signed

MOST_TESTS = 1_000
"""Maximum number of run pairs to test, 15 minutes for 1,000 sentences.

If there are more, one model is compared with each of the others.
"""
TRIALS = 10_000
"""Shuffles per test; more if so many models are compared that none could be significant with these."""


@dataclass(frozen=True, kw_only=True)
class SignificanceSection:
    """Results of the paired tests."""

    notes: Sequence[str]
    matrix: HtmlTable | None = None
    """One row and one column per model, names in the first column; None unless all pairs were compared."""
    details: HtmlTable | None = None
    """One row per comparison."""


def choose_reference(finished: FinishedExperiment, baseline: str) -> str:
    """Return the model to compare the others with: ``baseline``, or if empty, the highest mean BLEU.

    Raises:
        ValueError: no finished model has that label.
    """
    labels = finished.labels
    if baseline and baseline not in labels:
        near = get_close_matches(baseline, labels, n=1) or list(labels)
        raise ValueError(f"no finished model is labelled {baseline!r}; did you mean {near[0]!r}?")
    means = {label: fmean(run.result.bleu or 0.0 for run in runs) for label, runs in labels.items()}
    return baseline or max(means, key=lambda label: means[label])


def run_comparisons(scored: ScoredTestSet, reference: str) -> list[Comparison]:
    """Compare all pairs of models; if that would take too long, ``reference`` with each other model."""
    shared = [len(one.keys() & other.keys()) for one, other in combinations(scored.models.values(), 2)]
    if sum(shared) > MOST_TESTS:
        return compare_models(scored, baseline=reference, trials=TRIALS)
    return compare_models(scored, trials=max(TRIALS, round(len(shared) / ALPHA)))


def significance(comparisons: Sequence[Comparison], labels: Sequence[str], test: str) -> SignificanceSection:
    """Build the section from the ``comparisons`` on a test set; ``labels`` give the order of the models."""
    if not comparisons:
        return SignificanceSection(notes=["No two models share a seed: nothing is compared."])
    sides = comparison_matrix(comparisons)
    known = [label for label in labels if label in sides]
    rule = (
        "One model beats another only where approximate randomisation on runs of one seed gives p < 0.05 "
        "after Holm's correction for all comparisons, and the 95% interval over seeds leaves out 0."
    )
    table = Table(
        f"BLEU of {test}: the difference with its three intervals, p-values (randomisation, bootstrap, and "
        "the first by Holm), sentences won, lost and tied by chrF, and the verdict.",
        [_readable(comparison.row) for comparison in comparisons],
    )
    details = html_table(table, "Every comparison")
    if len(known) > 2 and len({comparison.second for comparison in comparisons}) == 1:
        few = "Only one model is compared with each other: all pairs are too many, or share no seed."
        return SignificanceSection(notes=[few, rule], details=details)
    how = (
        f"BLEU of {test}: the model of the row minus that of the column, means over the seeds both have. "
        "▲ the row's model beats the column's, ▼ is beaten by it, ≈ inconclusive."
    )
    return SignificanceSection(notes=[how, rule], matrix=_matrix(sides, known), details=details)


def _readable(row: Row) -> Row:
    """Return a comparison's row with each interval merged into one column."""
    found: Row = {}
    for name, value in row.items():
        if name.endswith("_low"):
            kind = name.removeprefix("bleu_difference_").removesuffix("_low").replace("_", " ")
            high = row[name.replace("_low", "_high")]
            found[f"{kind} 95%"] = None if value is None else f"{value:.2f} to {high:.2f}"
        elif not name.endswith("_high"):
            found[name] = value
    return found


def _matrix(sides: Mapping[str, Mapping[str, Comparison]], labels: Sequence[str]) -> HtmlTable:
    rows = [
        [Cell(text=first), *(_cell(sides[first].get(second), first == second) for second in labels)]
        for first in labels
    ]
    heads = [ColumnHeading(text="model"), *(ColumnHeading(text=label, numeric=True) for label in labels)]
    return HtmlTable(title="Differences in BLEU between models", caption="", heads=heads, rows=rows)


def _cell(side: Comparison | None, itself: bool) -> Cell:
    return verdict(side) if side else Cell(text="" if itself else "not tested")


def verdict(side: Comparison) -> Cell:
    """Return the matrix cell of a comparison: ▲ wins, ▼ loses, ≈ inconclusive."""
    mark = "▲" if side.beats else "▼" if side.swapped().beats else "≈"
    return Cell(
        text=f"{mark} {signed(side.difference)} ({describe_p(side.p)})",
        order=side.difference,
        title=f"{side.first} against {side.second}: {side.row['verdict']}",
    )
