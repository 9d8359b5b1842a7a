"""Main outcome of an experiment in one or two sentences."""

from collections.abc import Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.significance.comparison import Comparison, comparison_matrix, describe_p
from compare.analysis.speed_spread import are_timed_together, timed_spread


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
        The difference with its p-value, or why it is inconclusive, and the ratio of the training speeds if
        their spreads do not overlap.
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
    """Compare training speeds; None unless they were timed together and their spreads do not overlap."""
    one, other = (timed_spread(runs, "train_tokens_per_s") for runs in (first, second))
    if one is None or other is None or not are_timed_together([*first, *second]):
        return None
    rates = [fmean(run.result.train_tokens_per_s or 0.0 for run in runs) for runs in (first, second)]
    if one.is_above(other):
        return f"trains {rates[0] / rates[1]:.1f} times faster"
    return f"trains {rates[1] / rates[0]:.1f} times slower" if other.is_above(one) else None


def _mean_bleu(runs: Sequence[FinishedRun]) -> float:
    """Average BLEU on the first test set over the runs of a label."""
    return fmean(run.result.bleu for run in runs if run.result.bleu is not None)
