"""Compare the models of a test set: paired tests on runs of the same seed, corrected for their number."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import combinations

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.significance.comparison import ALPHA, Comparison
from compare.analysis.significance.intervals import difference_intervals
from compare.analysis.significance.paired_tests import holm, seeds_p
from compare.analysis.significance.scored_tests import ScoredRun, ScoredTestSet

logger = logging.getLogger(__name__)

Pair = tuple[str, str]
"""The labels of two models, first and second."""
Matched = Mapping[int, tuple[ScoredRun, ScoredRun]]
"""Their runs by the seeds that both have."""


def compare_models(
    scored: ScoredTestSet,
    *,
    baseline: str | None = None,
    trials: int = 10_000,
    resamples: int = 1000,
) -> list[Comparison]:
    """Compare every other model with ``baseline``, or each with each.

    Two models without a common seed are left out. A comparison takes 2 s a seed and 1,000 sentences.

    Args:
        scored: the test set and its translations.
        baseline: a label; None compares all pairs, the model further down the table coming first.
        trials: shuffles of the approximate randomisation.
        resamples: of the paired bootstrap.

    Raises:
        ValueError: no such baseline, or too few trials for any p to survive the correction.
    """
    pairs = _pairs(scored.models, baseline)
    _check_trials(trials, len(pairs))
    metric = BLEU(references=[scored.references])
    found = []
    for pair, runs in pairs.items():
        logger.info("paired tests: %s against %s", *pair)
        found.append(_compare(pair, runs, metric, trials, resamples))
    corrected = holm([comparison.p_randomisation for comparison in found])
    return [replace(comparison, p=p) for comparison, p in zip(found, corrected, strict=True)]


def _compare(pair: Pair, matched: Matched, metric: BLEU, trials: int, resamples: int) -> Comparison:
    """The comparison of a pair, its p not yet corrected."""
    runs = list(matched.values())
    p_randomisation = seeds_p(runs, metric, "ar", trials)
    counted = [
        [(one.chrf > other.chrf).sum(), (one.chrf < other.chrf).sum(), (one.chrf == other.chrf).sum()]
        for one, other in runs
    ]
    wins, losses, ties = np.mean(counted, axis=0).tolist()
    return Comparison(
        first=pair[0],
        second=pair[1],
        seeds=tuple(matched),
        differences=tuple(one.bleu - other.bleu for one, other in runs),
        intervals=difference_intervals(runs),
        p_randomisation=p_randomisation,
        p_bootstrap=seeds_p(runs, metric, "bs", resamples),
        p=p_randomisation,
        wins=wins,
        losses=losses,
        ties=ties,
    )


def _pairs(models: Mapping[str, Mapping[int, ScoredRun]], baseline: str | None) -> dict[Pair, Matched]:
    """The pairs to compare, with their runs."""
    if baseline is None:
        labels = [(first, second) for second, first in combinations(models, 2)]
    elif baseline in models:
        labels = [(label, baseline) for label in models if label != baseline]
    else:
        near = get_close_matches(baseline, models, n=1) or list(models)
        raise ValueError(f"no finished model is labelled {baseline!r}; did you mean {near[0]!r}?")
    found: dict[Pair, Matched] = {}
    for first, second in labels:
        common = sorted(models[first].keys() & models[second].keys())
        if common:
            found[first, second] = {seed: (models[first][seed], models[second][seed]) for seed in common}
    return found


def _check_trials(trials: int, comparisons: int) -> None:
    """Refuse to shuffle for minutes where even the smallest p, 1 / (trials + 1), would be corrected away."""
    needed = round(comparisons / ALPHA)
    if trials < needed:
        raise ValueError(
            f"{trials} trials cannot show any of {comparisons} comparisons significant after correction: "
            f"take {needed} trials or more, or compare with one baseline only"
        )
