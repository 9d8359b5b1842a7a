"""Paired comparison of models on a test set, on runs of the same seed, with Holm's correction."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import combinations

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.significance.comparison import ALPHA, Comparison
from compare.analysis.significance.intervals import difference_intervals
from compare.analysis.significance.paired_tests import all_seeds_p, holm_correction
from compare.analysis.significance.scored_tests import ScoredRun, ScoredTestSet

logger = logging.getLogger(__name__)

LabelPair = tuple[str, str]
"""The labels of two models, first and second."""
RunsBySeed = Mapping[int, tuple[ScoredRun, ScoredRun]]
"""The runs of both models by the seeds that both have."""


def compare_models(
    scored: ScoredTestSet,
    *,
    baseline: str | None = None,
    trials: int = 10_000,
    resamples: int = 1000,
) -> list[Comparison]:
    """Compare every other model with ``baseline``, or all pairs of models.

    Two models without a common seed are left out. A comparison takes about 2 s per seed and 1,000 sentences.

    Args:
        scored: the test set and its translations.
        baseline: a label; None compares all pairs, the model further down the table being the first.
        trials: shuffles of the approximate randomisation test.
        resamples: resamples of the paired bootstrap test.

    Returns:
        One comparison per pair, its ``p`` corrected for the number of comparisons.

    Raises:
        ValueError: the baseline does not exist, or ``trials`` are too few for any p to be significant after
            correction.
    """
    pairs = _matched_pairs(scored.models, baseline)
    _check_trials(trials, len(pairs))
    metric = BLEU(references=[scored.references])
    comparisons = []
    for labels, runs in pairs.items():
        logger.info("paired tests: %s against %s", *labels)
        comparisons.append(_compare_pair(labels, runs, metric, trials, resamples))
    corrected = holm_correction([comparison.p_randomisation for comparison in comparisons])
    return [replace(comparison, p=p) for comparison, p in zip(comparisons, corrected, strict=True)]


def _compare_pair(
    labels: LabelPair, runs_by_seed: RunsBySeed, metric: BLEU, trials: int, resamples: int
) -> Comparison:
    """Compare two models; ``p`` is not yet corrected."""
    runs = list(runs_by_seed.values())
    p_randomisation = all_seeds_p(runs, metric, "ar", trials)
    outcomes = [
        [
            (first.chrf > second.chrf).sum(),
            (first.chrf < second.chrf).sum(),
            (first.chrf == second.chrf).sum(),
        ]
        for first, second in runs
    ]
    wins, losses, ties = np.mean(outcomes, axis=0).tolist()
    return Comparison(
        first=labels[0],
        second=labels[1],
        seeds=tuple(runs_by_seed),
        differences=tuple(first.bleu - second.bleu for first, second in runs),
        intervals=difference_intervals(runs),
        p_randomisation=p_randomisation,
        p_bootstrap=all_seeds_p(runs, metric, "bs", resamples),
        p=p_randomisation,
        wins=wins,
        losses=losses,
        ties=ties,
    )


def _matched_pairs(
    models: Mapping[str, Mapping[int, ScoredRun]], baseline: str | None
) -> dict[LabelPair, RunsBySeed]:
    """List the pairs to compare, with the runs of their common seeds."""
    if baseline is None:
        labels = [(first, second) for second, first in combinations(models, 2)]
    elif baseline in models:
        labels = [(label, baseline) for label in models if label != baseline]
    else:
        near = get_close_matches(baseline, models, n=1) or list(models)
        raise ValueError(f"no finished model is labelled {baseline!r}; did you mean {near[0]!r}?")
    pairs: dict[LabelPair, RunsBySeed] = {}
    for first, second in labels:
        seeds = sorted(models[first].keys() & models[second].keys())
        if seeds:
            pairs[first, second] = {seed: (models[first][seed], models[second][seed]) for seed in seeds}
    return pairs


def _check_trials(trials: int, comparisons: int) -> None:
    """Reject ``trials`` whose smallest p, 1 / (trials + 1), would not be significant after correction."""
    needed = round(comparisons / ALPHA)
    if trials < needed:
        raise ValueError(
            f"{trials} trials cannot show any of {comparisons} comparisons significant after correction: "
            f"take {needed} trials or more, or compare with one baseline only"
        )
