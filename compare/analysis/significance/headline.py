"""Main outcome of an experiment in one or two sentences."""

from collections.abc import Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.significance.comparison import Comparison, comparison_matrix, describe_p

SAME_SPEED = 0.05
"""Relative difference below which two speeds count as equal: repeated timings of one model vary as much."""


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare the model with the highest mean BLEU with the next best model and with the last.

    Args:
        finished: the experiment.
        comparisons: comparisons on its first test set; models without a comparison are not mentioned.

    Returns:
        At most two sentences, or one with the reason why there is no comparison.
    """
    if not comparisons:
        only = len(finished.labels) == 1
        return ["There is one model, so nothing to compare." if only else "No two models share a seed."]
    matrix = comparison_matrix(comparisons)
    best, *others = sorted(matrix, key=lambda label: _mean_bleu(finished.labels[label]), reverse=True)
    ranking = [label for label in others if label in matrix[best]]
    next_and_last = dict.fromkeys((ranking[0], ranking[-1]))  # one model if these are the same
    return [describe_comparison(matrix[best][label], finished) for label in next_and_last]


def describe_comparison(comparison: Comparison, finished: FinishedExperiment) -> str:
    """Describe a comparison in words, the model with the higher BLEU first.

    Args:
        comparison: a comparison of two models of ``finished``.
        finished: the experiment, which has the training speeds.

    Returns:
        The difference with its p-value, or why it is inconclusive, and the ratio of the training speeds.
    """
    ordered = comparison if comparison.difference >= 0 else comparison.swapped()
    points = f"{ordered.difference:.1f}" if ordered.difference >= 1 else f"{ordered.difference:.2f}"
    speed = _describe_speed(finished.labels[ordered.first], finished.labels[ordered.second])
    if ordered.beats:
        evidence = f"by {points} BLEU ({describe_p(ordered.p)}, {len(ordered.seeds)} seeds)"
        return f"{ordered.first} beats {ordered.second} {evidence}" + (f" and {speed}." if speed else ".")
    lead = f"{points} BLEU ahead of" if float(points) else "level with"
    reason = ordered.inconclusive_reason
    text = f"{ordered.first} is {lead} {ordered.second} but cannot be said to beat it: {reason}."
    return text + (f" It {speed}." if speed else "")


def _describe_speed(first: Sequence[FinishedRun], second: Sequence[FinishedRun]) -> str | None:
    """Compare mean training speeds; None if one is missing or they were measured under other conditions."""
    results = [run.result for run in (*first, *second)]
    conditions = {(result.device, result.torch, result.threads, result.precision) for result in results}
    rates = [result.train_tokens_per_s or 0.0 for result in results]
    if len(conditions) > 1 or not all(rates):
        return None
    ratio = fmean(rates[: len(first)]) / fmean(rates[len(first) :])
    if abs(ratio - 1) < SAME_SPEED:
        return "trains as fast"
    return f"trains {ratio:.1f} times faster" if ratio > 1 else f"trains {1 / ratio:.1f} times slower"


def _mean_bleu(runs: Sequence[FinishedRun]) -> float:
    """Average BLEU on the first test set over the runs of a label."""
    return fmean(run.result.bleu for run in runs if run.result.bleu is not None)
