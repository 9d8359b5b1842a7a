"""Main outcome of an experiment, one sentence per model."""

from collections.abc import Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.significance.comparison import ONE_SEED, Comparison, comparison_matrix, describe_p
from compare.analysis.speed_spread import are_timed_together, timed_spread
from compare.scoring.metrics import METRICS


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare the best model with every other model, in the order of their BLEU.

    BLEU is the mean over seeds, without those with which another model failed: none is ahead because its bad
    seed is missing.

    Args:
        finished: the experiment.
        comparisons: comparisons by BLEU on its first test set.

    Returns:
        One sentence per other model, or the reason why there is no comparison; one that names the models that
        were not compared with the best, and one those of which runs failed and none ended.
    """
    failed = [label for label in finished.failed_seeds if label not in finished.labels]
    lost = [f"Not compared, as runs failed and none ended: {', '.join(failed)}."] if failed else []
    if not comparisons:
        only = len(finished.labels) == 1
        reason = (
            "There is one finished model, so nothing to compare." if only else "No two models share a seed."
        )
        return [reason, *lost]
    matrix = comparison_matrix(comparisons)
    means = mean_bleu(finished)
    best, *others = sorted(means, key=lambda label: (label in matrix, means[label]), reverse=True)
    sentences = [
        describe_comparison(matrix[best][label], finished) for label in others if label in matrix[best]
    ]
    if missing := [label for label in others if label not in matrix[best]]:
        sentences.append(f"Not compared with {best}: {', '.join(missing)}.")
    return [*sentences, *lost]


def describe_comparison(comparison: Comparison, finished: FinishedExperiment) -> str:
    """Describe a comparison in words, the model with the higher score first.

    Args:
        comparison: a comparison of two models of ``finished``.
        finished: the experiment, which has the training speeds.

    Returns:
        The difference with its p-value, or why it is inconclusive, and the ratio of the training speeds if
        their spreads do not overlap. The seeds are named where they are not all those of both models.
    """
    ordered = comparison if comparison.difference >= 0 else comparison.swapped()
    speed = _describe_speed(finished.labels[ordered.first], finished.labels[ordered.second])
    points = f"{_points(ordered.difference)} {METRICS[ordered.metric].heading}"
    if ordered.beats:
        seeds = _name_seeds(ordered, finished) or f", {len(ordered.seeds)} seeds"
        evidence = f"by {points} ({describe_p(ordered.p)}{seeds})"
        return f"{ordered.first} beats {ordered.second} {evidence}" + (f" and {speed}." if speed else ".")
    text = f"{ordered.first} is {points} ahead of {ordered.second}{_name_seeds(ordered, finished)}"
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


def _name_seeds(comparison: Comparison, finished: FinishedExperiment) -> str:
    """Name the seeds of a comparison if either model has others too."""
    every = {
        seed
        for label in (comparison.first, comparison.second)
        for seed in (run.result.seed for run in finished.labels[label])
    }
    if every == set(comparison.seeds):
        return ""
    number = "seeds" if len(comparison.seeds) > 1 else "seed"
    return f" on {number} {', '.join(map(str, comparison.seeds))}"


def _describe_speed(first: Sequence[FinishedRun], second: Sequence[FinishedRun]) -> str | None:
    """Compare training speeds; None unless they were timed together and their spreads do not overlap."""
    one, other = (timed_spread(runs, "train_tokens_per_s") for runs in (first, second))
    if one is None or other is None or not are_timed_together([*first, *second]):
        return None
    rates = [fmean(run.result.train_tokens_per_s or 0.0 for run in runs) for runs in (first, second)]
    if one.is_above(other):
        return f"trains {rates[0] / rates[1]:.1f} times faster"
    return f"trains {rates[1] / rates[0]:.1f} times slower" if other.is_above(one) else None


def mean_bleu(finished: FinishedExperiment) -> dict[str, float]:
    """Average BLEU on the first test set by label, over the seeds with which no model failed, if any."""
    models, failures = finished.labels, finished.failed_seeds
    failed = {seed for label in models for seed in failures.get(label, ())}
    means = {}
    for label, runs in models.items():
        scores = {run.result.seed: run.result.bleu or 0.0 for run in runs}
        means[label] = fmean([bleu for seed, bleu in scores.items() if seed not in failed] or scores.values())
    return means
