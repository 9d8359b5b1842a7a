"""Main outcome of an experiment, one sentence per model."""

from collections.abc import Container, Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.significance.comparison import ONE_SEED, Comparison, comparison_matrix, describe_p
from compare.analysis.speed_spread import are_timed_together, timed_spread
from compare.scoring.metrics import METRICS


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare the model with the highest mean BLEU with every other model, in the order of their BLEU.

    Args:
        finished: the experiment.
        comparisons: comparisons by BLEU on its first test set.

    Returns:
        One sentence per other model, and one that names the models that were not compared with the best; or
        the reason why there is no comparison.
    """
    if not comparisons:
        only = len(finished.labels) == 1
        return ["There is one model, so nothing to compare." if only else "No two models share a seed."]
    matrix = comparison_matrix(comparisons)
    best, *others = sorted(finished.labels, key=lambda label: _rank(label, finished, matrix), reverse=True)
    sentences = [
        describe_comparison(matrix[best][label], finished) for label in others if label in matrix[best]
    ]
    if missing := [label for label in others if label not in matrix[best]]:
        sentences.append(f"Not compared with {best}: {', '.join(missing)}.")
    return sentences


def describe_comparison(comparison: Comparison, finished: FinishedExperiment) -> str:
    """Describe a comparison in words, the model with the higher score first.

    Args:
        comparison: a comparison of two models of ``finished``.
        finished: the experiment, which has the training speeds.

    Returns:
        The difference with its p-value, or why it is inconclusive, and the ratio of the training speeds if
        their spreads do not overlap.
    """
    ordered = comparison if comparison.difference >= 0 else comparison.swapped()
    speed = _describe_speed(finished.labels[ordered.first], finished.labels[ordered.second])
    points = f"{_points(ordered.difference)} {METRICS[ordered.metric].heading}"
    if ordered.beats:
        evidence = f"by {points} ({describe_p(ordered.p)}, {len(ordered.seeds)} seeds)"
        return f"{ordered.first} beats {ordered.second} {evidence}" + (f" and {speed}." if speed else ".")
    text = f"{ordered.first} is {points} ahead of {ordered.second}"
    if ordered.inconclusive_reason == ONE_SEED:
        text += f" ({describe_p(ordered.p)}): {ONE_SEED}."
    else:
        text += f" but cannot be said to beat it: {ordered.inconclusive_reason}."
    return text + (f" It {speed}." if speed else "")


def _points(difference: float) -> str:
    """Format a difference that is not negative; one that would be rounded to 0 as "less than 0.01"."""
    if difference >= 1:
        return f"{difference:.1f}"
    return f"{difference:.2f}" if difference >= 0.01 else "less than 0.01"


def _rank(label: str, finished: FinishedExperiment, compared: Container[str]) -> tuple[bool, float]:
    """Return the key by which models are sorted: those that were compared first, then by BLEU."""
    return label in compared, _mean_bleu(finished.labels[label])


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
    return fmean(run.result.bleu or 0.0 for run in runs)
