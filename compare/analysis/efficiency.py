"""Test BLEU against decoding speed and size, and validation BLEU against the trials of a search."""

import math
from collections.abc import Sequence
from statistics import fmean

from compare.analysis.cost import NO_BLEU
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, Spread, timed_spread
from compare.experiment.tune import TrialResult, group_trials
from compare.results.formatting import Row, Table

SPEED = "beam_sentences_per_s"
SIZE = "params"


def pareto(finished: FinishedExperiment) -> Table:
    """List means of test BLEU, decoding speed and parameters, and which models are Pareto-optimal.

    A label without one of the figures is left out.
    """
    rows = [row for label, runs in finished.labels.items() if (row := _mean_row(label, runs))]
    if all(run.result.bleu is None for run in finished.runs):
        raise ValueError(NO_BLEU)
    if not rows:
        raise ValueError("no model has been timed: run the experiment again to complete it")
    spreads = [Spread(row[f"{SPEED}_low"], row[f"{SPEED}_high"]) for row in rows]
    speed_front = pareto_front([(row[SPEED], row["bleu"]) for row in rows], spreads)
    size_front = pareto_front([(-row[SIZE], row["bleu"]) for row in rows])
    caption = (
        f"BLEU of {finished.corpus.tests[0]} against decoding speed and against size. A model is on a front "
        "if no other is better in one of the two and at least as good in the other. Speeds whose spreads "
        "overlap count as equal."
    )
    fronts = [{"speed_front": a, "size_front": b} for a, b in zip(speed_front, size_front, strict=True)]
    rows = [row | front for row, front in zip(rows, fronts, strict=True)]
    return Table(caption, rows, "Models on the Pareto fronts")


def pareto_front(points: Sequence[tuple[float, float]], spreads: Sequence[Spread] = ()) -> list[bool]:
    """Return which points are Pareto-optimal; first coordinates with overlapping spreads are equal."""
    spreads = spreads or [Spread(x, x) for x, _ in points]
    candidates = [(spread, y) for spread, (_, y) in zip(spreads, points, strict=True)]
    return [not any(_dominates(other, one) for other in candidates) for one in candidates]


def _dominates(one: tuple[Spread, float], other: tuple[Spread, float]) -> bool:
    (x, y), (other_x, other_y) = one, other
    return y >= other_y and not other_x.is_above(x) and (y > other_y or x.is_above(other_x))


def _mean_row(label: str, runs: Sequence[FinishedRun]) -> Row:
    bleu, speed, size = (
        [value for run in runs if (value := getattr(run.result, name)) is not None]
        for name in ("bleu", SPEED, SIZE)
    )
    if not len(bleu) == len(speed) == len(size) == len(runs):
        return {}
    low, high = timed_spread(runs, SPEED) or (min(speed), max(speed))
    return {
        "label": label,
        "seeds": len(runs),
        "bleu": fmean(bleu),
        "bleu_low": min(bleu),
        "bleu_high": max(bleu),
        SPEED: fmean(speed),
        f"{SPEED}_low": low,
        f"{SPEED}_high": high,
        SIZE: size[0],
    }


# Expected best validation score of a random search against its number of trials.


def expected_best(scores: Sequence[float], draws: int) -> float:
    """Estimate the expected maximum of ``draws`` trials without bias.

    The mean of the maximum over all subsets of ``draws`` different trials (Tang et al. 2020, "Showing Your
    Work Doesn't Always Work", https://aclanthology.org/2020.acl-main.246): sum over i of C(i - 1, k - 1) /
    C(n, k) v_i, for k draws and the scores v_1 <= ... <= v_n.
    """
    total = math.comb(len(scores), draws)
    return sum(math.comb(i - 1, draws - 1) / total * score for i, score in enumerate(sorted(scores), start=1))


def tuning_curve(trials: Sequence[TrialResult]) -> Table:
    """Compute the expected best validation BLEU of each model after 1, 2, ... trials.

    A failed trial counts as BLEU 0, and the first seed counts for a trial. Raises ValueError for language
    models.
    """
    rows: list[Row] = []
    for label, candidates in group_trials(trials).items():
        if not all(candidate.translates for candidate in candidates):
            raise ValueError(NO_BLEU)
        first = [candidate.results[0] for candidate in candidates]
        scores, seconds = [trial.score for trial in first], fmean(trial.seconds for trial in first)
        rows += [
            {
                "label": label,
                "trials": draws,
                "expected_bleu": expected_best(scores, draws),
                "expected_seconds": draws * seconds,
            }
            for draws in range(1, len(scores) + 1)
        ]
    return Table(
        "Validation BLEU that the best of so many random trials is expected to have (Tang et al. 2020). A "
        "failed trial counts as 0.",
        rows,
        "Expected best validation BLEU against number of trials",
    )
