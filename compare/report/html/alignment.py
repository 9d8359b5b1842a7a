"""Section on attention as alignment: alignment error rate against gold links, and entropy."""

import logging
from collections.abc import Iterable, Sequence
from statistics import fmean

from compare.analysis.alignment.experiment_alignment import BASELINE, align_experiment, median_over_seeds
from compare.analysis.alignment.experiment_entropy import attention_spread
from compare.analysis.alignment.links import ARG_MAX
from compare.analysis.alignment.word_attention import AttentionHead
from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.seed_means import mean_over_seeds
from compare.analysis.table import Row, Table
from compare.report.html.curves import Bar, bar_plot
from compare.report.html.drawings import embed_figure
from compare.report.html.parts import Drawing, HtmlTable, Section, html_table
from compare.results.numbers import format_number
from compare.system.hints import explain

logger = logging.getLogger(__name__)

TITLE = "Attention as alignment"
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


def alignment(finished: FinishedExperiment) -> tuple[Section, dict[tuple[str, int], AttentionHead]]:
    """Make the section of alignment errors and entropies; also return the best head of each run."""
    notes: list[str] = []
    drawings: list[Drawing] = []
    grids: list[HtmlTable] = []
    chosen: dict[tuple[str, int], AttentionHead] = {}
    try:
        found = align_experiment(finished)
        chosen = found.chosen
        drawings.append(_error_bars(found.rows, finished.labels))
        grids.append(html_table(Table(ERRORS, median_over_seeds(found.rows)), "Alignment errors"))
        grids.append(html_table(mean_over_seeds(Table(HEADS, found.heads)), "Alignment errors of every head"))
    except (OSError, ValueError) as error:
        notes.append(f"Alignment errors are not shown: {explain(error)}")
    try:
        logger.info("report: entropy of attention")
        grids.append(
            html_table(mean_over_seeds(Table(SPREAD, attention_spread(finished))), "Entropy of attention")
        )
    except (OSError, ValueError) as error:
        notes.append(f"Entropies are not shown: {explain(error)}")
    section = Section(name="alignment", title=TITLE, notes=notes, drawings=drawings, grids=grids)
    return section, chosen


def _error_bars(rows: Sequence[Row], labels: Iterable[str]) -> Drawing:
    """Draw the AER by arg max of each model's best head, and of the diagonal baseline.

    A model without attention has no bar.
    """
    values: dict[str, list[float]] = {label: [] for label in (*labels, BASELINE)}
    for row in rows:
        if row["method"] in (ARG_MAX, BASELINE) and row["read"] != "mean" and row["aer"] is not None:
            values[row["label"]].append(row["aer"])
    title = "Alignment error rate of each model's best head, by arg max"
    means = "; ".join(f"{label} {format_number(fmean(own))}" for label, own in values.items() if own)
    panels = {"alignment error rate (0 is best)": {label: Bar.over(own) for label, own in values.items()}}
    return embed_figure(bar_plot(panels), "aer-bars", title, f"Means over seeds: {means}.")
