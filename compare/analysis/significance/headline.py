"""The outcome of an experiment in words, made from its figures."""

from collections.abc import Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.significance.comparison import Comparison, comparison_matrix, describe_p

SAME_SPEED = 0.05
"""Speeds closer than this share are called the same: timing one model again differs by as much."""


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """At most two sentences: the model of the highest mean BLEU against the next best, and against the last.

    Args:
        finished: the experiment.
        comparisons: of its first test set; only models that were compared are spoken of.
    """
    if not comparisons:
        only = len(finished.labels) == 1
        return ["There is one model, so nothing to compare." if only else "No two models share a seed."]
    sides = comparison_matrix(comparisons)
    best, *ranking = sorted(sides, key=lambda label: _mean_bleu(finished.labels[label]), reverse=True)
    rivals = [label for label in ranking if label in sides[best]]
    return [
        describe_comparison(sides[best][rival], finished) for rival in dict.fromkeys((rivals[0], rivals[-1]))
    ]


def describe_comparison(comparison: Comparison, finished: FinishedExperiment) -> str:
    """One comparison, the model with more BLEU first: what is known, or why nothing is, and the speed."""
    side = comparison if comparison.difference >= 0 else comparison.swapped()
    points = f"{side.difference:.1f}" if side.difference >= 1 else f"{side.difference:.2f}"
    speed = _speed(finished.labels[side.first], finished.labels[side.second])
    if side.beats:
        known = f"by {points} BLEU ({describe_p(side.p)}, {len(side.seeds)} seeds)"
        return f"{side.first} beats {side.second} {known}" + (f" and {speed}." if speed else ".")
    lead = f"{points} BLEU ahead of" if float(points) else "level with"
    told = f"{side.first} is {lead} {side.second} but cannot be said to beat it: {side.doubt}."
    return told + (f" It {speed}." if speed else "")


def _speed(first: Sequence[FinishedRun], second: Sequence[FinishedRun]) -> str | None:
    """How fast first trains beside second; None where it is not known or was timed under other conditions."""
    results = [run.result for run in (*first, *second)]
    conditions = {(each.device, each.torch, each.threads, each.precision) for each in results}
    rates = [each.train_tokens_per_s or 0.0 for each in results]
    if len(conditions) > 1 or not all(rates):
        return None
    ratio = fmean(rates[: len(first)]) / fmean(rates[len(first) :])
    if abs(ratio - 1) < SAME_SPEED:
        return "trains as fast"
    return f"trains {ratio:.1f} times faster" if ratio > 1 else f"trains {1 / ratio:.1f} times slower"


def _mean_bleu(runs: Sequence[FinishedRun]) -> float:
    """The mean BLEU of a label's runs on the first test set."""
    return fmean(run.result.bleu for run in runs if run.result.bleu is not None)
