"""The attention of every finished run as word alignment, against the gold links of the corpus.

Which head is read, and at what threshold, is chosen on the validation split; figures are of a test set.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from compare.analysis.alignment.aer import Agreement, count_links
from compare.analysis.alignment.gold import Gold, corpus_gold
from compare.analysis.alignment.links import ARG_MAX, METHODS, diagonal
from compare.analysis.alignment.measurement import AlignmentMeasurement, measure_alignment
from compare.analysis.alignment.word_attention import AttentionHead
from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.table import Row
from compare.results.trained_model import load_model

logger = logging.getLogger(__name__)

BASELINE = "diagonal"
"""Label and method of the links that need no model."""


class Alignments(NamedTuple):
    """What ``align_experiment`` found."""

    rows: list[Row]
    """The baseline; then, by run and method, the best head, and where there are several the best mean."""
    heads: list[Row]
    """Every head and mean of every run by arg max, on validation."""
    chosen: dict[tuple[str, int], AttentionHead]
    """The best head or mean of each run by arg max on validation, by label and seed."""


def align_experiment(
    finished: FinishedExperiment,
    *,
    test: str | None = None,
    device: str = "cpu",
) -> Alignments:
    """Align a test set with every run that has attention to the source; the others have no rows.

    Args:
        finished: the experiment.
        test: name of a test set; None is the first, which gives the headline.
        device: where the models run.

    Raises:
        ValueError: the corpus has no gold links, or no such test set, or a run cannot be loaded.
    """
    test = test or finished.corpus.tests[0]
    valid_gold, test_gold = (corpus_gold(finished.corpus, split) for split in ("valid", test))
    found = Alignments([baseline(test_gold)], [], {})
    for run in finished.runs:
        logger.info(f"aligning {test}: {run.folder.name}")
        translator = load_model(run.folder, device)
        valid, tested = measure_alignment(translator, valid_gold), measure_alignment(translator, test_gold)
        if valid is None or tested is None:
            continue
        names = {"label": run.result.label, "seed": run.result.seed}
        every = range(len(valid.heads))
        found.rows.extend(names | row for row in best_rows(valid, tested))
        found.heads.extend(names | valid.row(valid.best(ARG_MAX, [head])) for head in every)
        found.chosen[run.result.label, run.result.seed] = valid.heads[valid.best(ARG_MAX, every).head]
    return found


def best_rows(valid: AlignmentMeasurement, tested: AlignmentMeasurement) -> Iterator[Row]:
    """The test figures of what is best on validation: of single heads, then of means, by each method."""
    for read in ("head", "mean"):
        heads = [place for place, head in enumerate(valid.heads) if (head.number is None) == (read == "mean")]
        for method in dict.fromkeys(method.name for method in METHODS) if heads else ():
            best = valid.best(method, heads)
            yield {"read": read, **tested.row(best), "aer_valid": valid.agreement(best).aer}


def baseline(gold: Gold) -> Row:
    """The row of the diagonal, which knows of a pair only how long its sides are."""
    counts = [count_links(diagonal(*links.sure.shape), links.sure, links.possible) for links in gold.links]
    found = Agreement(*np.sum(counts, axis=0).tolist())
    names = {"label": BASELINE, "seed": None, "read": None, "attention": None, "method": BASELINE}
    return {**names, **found.shares()}


def median_over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Rows as ``align_experiment`` gives them, those that differ in the seed alone put together as one."""
    groups: dict[tuple[str, str | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["label"], row["read"], row["method"]), []).append(row)
    return [
        {
            "label": label,
            "read": read,
            "method": method,
            "seeds": sum(row["seed"] is not None for row in group),
            "aer_median": _over(median, group, "aer"),
            "aer_lowest": _over(min, group, "aer"),
            "aer_highest": _over(max, group, "aer"),
            "precision_median": _over(median, group, "precision"),
            "recall_median": _over(median, group, "recall"),
        }
        for (label, read, method), group in groups.items()
    ]


def _over(function: Callable[[list[float]], float], rows: Sequence[Row], name: str) -> float | None:
    """``function`` of what ``rows`` have under ``name``; None where none has anything."""
    values = [row[name] for row in rows if row[name] is not None]
    return function(values) if values else None
