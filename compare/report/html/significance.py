"""Section on significance: paired tests of every two models as matrices, and the choice of a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.significance.compare_models import compare_models
from compare.analysis.significance.comparison import (
    ALPHA,
    ONE_SEED,
    Comparison,
    comparison_matrix,
    describe_p,
)
from compare.analysis.significance.headline import mean_bleu
from compare.analysis.significance.matched_runs import match_runs
from compare.analysis.significance.power import POWER
from compare.analysis.significance.scored_tests import ScoredTestSet
from compare.analysis.table import Row, Table
from compare.report.html.parts import Cell, ColumnHeading, HtmlTable, html_table, signed
from compare.scoring.metrics import METRICS

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
