"""Word alignment from the attention of every finished run, scored against the gold links of the corpus.

Head and threshold are chosen on the validation split; the scores reported are those of a test set.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from compare.analysis.alignment.aer import AlignmentCounts
from compare.analysis.alignment.gold import Gold, corpus_gold
from compare.analysis.alignment.links import ARG_MAX, METHODS, diagonal
from compare.analysis.alignment.measurement import AlignmentMeasurement, measure_alignment
from compare.analysis.alignment.word_attention import AttentionHead
from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.table import Row
from compare.results.trained_model import load_model

logger = logging.getLogger(__name__)

BASELINE = "diagonal"
"""Label and method of the baseline, diagonal links that need no model."""


class Alignments(NamedTuple):
    """Result of ``align_experiment``."""

    rows: list[Row]
    """The baseline; then by run and method the best head and, for several heads, the best mean of heads."""
    heads: list[Row]
    """Every head and mean of heads of every run, with arg max links, on validation."""
    chosen: dict[tuple[str, int], AttentionHead]
    """The head or mean with the lowest validation AER of arg max links, by label and seed."""


def align_experiment(
    finished: FinishedExperiment,
    *,
    test: str | None = None,
    device: str = "cpu",
) -> Alignments:
    """Align a test set with every run that has attention to the source; other runs have no rows.

    Args:
        finished: the experiment.
        test: name of a test set; None is the first, which gives the headline.
        device: the torch device on which the models run.

    Raises:
        ValueError: the corpus has no gold links, the test set does not exist, or a run cannot be loaded.
    """
    test = test or finished.corpus.tests[0]
    valid_gold, test_gold = (corpus_gold(finished.corpus, split) for split in ("valid", test))
    alignments = Alignments([baseline_row(test_gold)], [], {})
    for run in finished.runs:
        logger.info(f"aligning {test}: {run.folder.name}")
        translator = load_model(run.folder, device)
        valid, tested = measure_alignment(translator, valid_gold), measure_alignment(translator, test_gold)
        if valid is None or tested is None:
            continue
        names = {"label": run.result.label, "seed": run.result.seed}
        heads = range(len(valid.heads))
        alignments.rows.extend(names | row for row in best_choice_rows(valid, tested))
        alignments.heads.extend(names | valid.row(valid.best(ARG_MAX, [head])) for head in heads)
        alignments.chosen[run.result.label, run.result.seed] = valid.heads[valid.best(ARG_MAX, heads).head]
    return alignments


def best_choice_rows(valid: AlignmentMeasurement, tested: AlignmentMeasurement) -> Iterator[Row]:
    """Yield the test scores of the best single head, then of the best mean of heads, for each method.

    Args:
        valid: the model on the validation split, where head and threshold are chosen.
        tested: the same model on the test set.
    """
    for kind in ("head", "mean"):
        heads = [i for i, head in enumerate(valid.heads) if (head.number is None) == (kind == "mean")]
        for method in dict.fromkeys(method.name for method in METHODS) if heads else ():
            best = valid.best(method, heads)
            yield {"read": kind, **tested.row(best), "aer_valid": valid.link_counts(best).aer}


def baseline_row(gold: Gold) -> Row:
    """Score diagonal links, which depend only on the lengths of the two sentences."""
    counts = [links.compare(diagonal(*links.sure.shape)) for links in gold.links]
    total = AlignmentCounts(*np.sum(counts, axis=0).tolist())
    names = {"label": BASELINE, "seed": None, "read": None, "attention": None, "method": BASELINE}
    return {**names, **total.scores()}


def median_over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Summarise the rows that differ only in their seed by median, minimum and maximum.

    Args:
        rows: as in ``Alignments.rows``.

    Returns:
        One row per label, kind of head and method.
    """
    groups: dict[tuple[str, str | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["label"], row["read"], row["method"]), []).append(row)
    return [
        {
            "label": label,
            "read": kind,
            "method": method,
            "seeds": sum(row["seed"] is not None for row in group),
            "aer_median": _apply(median, group, "aer"),
            "aer_lowest": _apply(min, group, "aer"),
            "aer_highest": _apply(max, group, "aer"),
            "precision_median": _apply(median, group, "precision"),
            "recall_median": _apply(median, group, "recall"),
        }
        for (label, kind, method), group in groups.items()
    ]


def _apply(function: Callable[[list[float]], float], rows: Sequence[Row], column: str) -> float | None:
    """Apply ``function`` to the values of ``column`` that are not None; None if all are."""
    values = [row[column] for row in rows if row[column] is not None]
    return function(values) if values else None
