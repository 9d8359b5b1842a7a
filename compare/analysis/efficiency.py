"""Cost of quality: BLEU during training and of a random search, Pareto fronts against speed and size."""

import math
from collections.abc import Sequence
from statistics import fmean

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, Spread, timed_spread
from compare.experiment.tune import TrialResult, group_trials
from compare.results.table import Row, Table
from compare.training.log import read_metrics

COSTS = {
    "seconds": "seconds of training",
    "updates": "updates",
    "tokens": "tokens of source and target",
    "flops": "floating-point operations of training",
    "joules": "joules of training",
}
"""Training costs: columns of ``progress``, and what they are in words."""
BELOW_BEST = (6, 4, 2)
"""BLEU below the best, rounded down, of the levels for which ``time_to_quality`` reports times."""
SPEED = "beam_sentences_per_s"
"""Speed column of ``pareto``: that of the search whose BLEU is reported."""
NO_BLEU = "there is no BLEU: language models translate nothing; tables have their perplexities"
SIZE = "params"
"""Size column of ``pareto``."""


def progress(finished: FinishedExperiment) -> Table:
    """List validation loss and BLEU with the training cost so far, one row per run and validation.

    FLOPs are ``train_flops_per_token`` of the result times the tokens of both sides, joules likewise with
    ``energy_j_per_1k_tokens``; None if the result lacks these.
    """
    rows = [row for run in finished.trained.runs for row in _validation_rows(run)]
    return Table("Validation (greedy search) during training; the seconds exclude validation itself.", rows)


def time_to_quality(curves: Sequence[Row], levels: Sequence[int] = ()) -> Table:
    """List minutes and updates after which each run first reached levels of validation BLEU.

    Args:
        curves: rows of ``progress``.
        levels: by default those of ``BELOW_BEST`` under the best BLEU of all runs.

    Returns:
        One row per run; None where it never reached the level.

    Raises:
        ValueError: the runs have no BLEU.
    """
    if any(row["bleu"] is None for row in curves):
        raise ValueError(NO_BLEU)
    best = max(row["bleu"] for row in curves)
    levels = levels or [level for below in BELOW_BEST if (level := math.floor(best) - below) > 0]
    runs: dict[tuple[str, int], list[Row]] = {}
    for row in curves:
        runs.setdefault((row["label"], row["seed"]), []).append(row)
    rows: list[Row] = []
    for (label, seed), validations in runs.items():
        row = {"label": label, "seed": seed}
        for level in levels:
            first = next((each for each in validations if each["bleu"] >= level), None)
            row[f"minutes_to_{level}"] = first and first["seconds"] / 60
            row[f"updates_to_{level}"] = first and first["updates"]
        rows.append(row)
    caption = (
        f"Training until the first validation with a BLEU of {', '.join(map(str, levels))} (best of all: "
        f"{best:.1f}), without the time of validation; a dash where a run did not get there."
    )
    return Table(caption, rows, "Time to quality")


def pareto(finished: FinishedExperiment) -> Table:
    """List test BLEU, decoding speed and parameters, and which models are Pareto-optimal.

    Returns:
        One row per label: means over seeds, for BLEU also minimum and maximum, for speed the lowest and
        highest repeat. A label without one of the figures is left out.
    """
    rows = [row for label, runs in finished.labels.items() if (row := _mean_row(label, runs))]
    if all(run.result.bleu is None for run in finished.runs):
        raise ValueError(NO_BLEU)
    if not rows:
        raise ValueError("no model has been timed: run the experiment again, which does what is left")
    spreads = [Spread(row[f"{SPEED}_low"], row[f"{SPEED}_high"]) for row in rows]
    speed_front = pareto_front([(row[SPEED], row["bleu"]) for row in rows], spreads)
    size_front = pareto_front([(-row[SIZE], row["bleu"]) for row in rows])
    caption = (
        f"BLEU of {finished.corpus.tests[0]} against decoding speed and against size: a model is on a front "
        "if no other is better in one of the two and at least as good in the other; speeds whose spreads "
        "overlap count as equal."
    )
    fronts = [{"speed_front": a, "size_front": b} for a, b in zip(speed_front, size_front, strict=True)]
    rows = [row | front for row, front in zip(rows, fronts, strict=True)]
    return Table(caption, rows, "Models on the Pareto fronts")


def pareto_front(points: Sequence[tuple[float, float]], spreads: Sequence[Spread] = ()) -> list[bool]:
    """Return whether each point is Pareto-optimal, larger being better in both coordinates.

    Equal points do not dominate each other.

    Args:
        points: the points.
        spreads: spread of the first coordinate of each point; where two overlap, they count as equal.
    """
    spreads = spreads or [Spread(x, x) for x, _ in points]
    candidates = [(spread, y) for spread, (_, y) in zip(spreads, points, strict=True)]
    return [not any(_dominates(other, one) for other in candidates) for one in candidates]


def _dominates(one: tuple[Spread, float], other: tuple[Spread, float]) -> bool:
    """Return whether ``one`` is at least as good in both coordinates and better in one."""
    (x, y), (other_x, other_y) = one, other
    return y >= other_y and not other_x.is_above(x) and (y > other_y or x.is_above(other_x))


def _mean_row(label: str, runs: Sequence[FinishedRun]) -> Row:
    """Average the figures of a label over its runs; empty if any run lacks one of them."""
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


def _validation_rows(run: FinishedRun) -> list[Row]:
    """List the rows of ``progress`` of one run."""
    lines = read_metrics(run.metrics)
    train_lines, valid_lines = (
        [line for line in lines if line["kind"] == kind] for kind in ("train", "valid")
    )
    flops, energy = run.result.train_flops_per_token, run.result.energy_j_per_1k_tokens
    rows = []
    for line in valid_lines:
        earlier = [train_line for train_line in train_lines if train_line["update"] <= line["update"]]
        tokens = sum(train_line["src_tokens"] + train_line["tgt_tokens"] for train_line in earlier)
        rows.append(
            {
                **run.names,
                "seconds": line["seconds"],
                "updates": line["update"],
                "tokens": tokens,
                "flops": None if flops is None else flops * tokens,
                "joules": None if energy is None else energy * tokens / 1000,
                "loss": line["loss"],
                "bleu": line["bleu"],
            }
        )
    return rows


# Expected best validation score of a random search against its number of trials.


def expected_best(scores: Sequence[float], draws: int) -> float:
    """Estimate the expected maximum of ``draws`` trials without bias.

    The mean of the maximum over all subsets of ``draws`` different trials (Tang et al. 2020, "Showing Your
    Work Doesn't Always Work", https://aclanthology.org/2020.acl-main.246):
    sum over i of C(i - 1, k - 1) / C(n, k) v_i, for k draws and the scores v_1 <= ... <= v_n.

    Args:
        scores: one score per trial, in any order.
        draws: from 1 to the number of scores.
    """
    total = math.comb(len(scores), draws)
    return sum(math.comb(i - 1, draws - 1) / total * score for i, score in enumerate(sorted(scores), start=1))


def tuning_curve(trials: Sequence[TrialResult]) -> Table:
    """Compute the expected best validation BLEU of each model after 1, 2, ... trials.

    A failed trial counts as BLEU 0, as it gives nobody a usable model. Of a trial with several seeds the
    first counts.

    Args:
        trials: ended trials, as read by ``read_trials``.

    Raises:
        ValueError: they are of language models.
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
