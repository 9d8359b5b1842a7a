"""Expected best validation score of a random search against its number of trials."""

from collections.abc import Sequence
from math import comb
from statistics import fmean

from compare.analysis.tables import Row, Table
from compare.experiment.tune import TrialResult, candidates, trials_by_label


def expected_best(scores: Sequence[float], draws: int) -> float:
    """Estimate the expected maximum of ``draws`` trials without bias.

    The mean of the maximum over all subsets of ``draws`` different trials (Tang et al. 2020, "Showing Your
    Work Doesn't Always Work", https://aclanthology.org/2020.acl-main.246):
    sum over i of C(i - 1, k - 1) / C(n, k) v_i, for k draws and the scores v_1 <= ... <= v_n.

    Args:
        scores: one score per trial, in any order.
        draws: from 1 to the number of scores.

    Raises:
        ValueError: more draws than scores, or none.
    """
    ordered = _ordered(scores, draws)
    total = comb(len(ordered), draws)
    return sum(comb(i - 1, draws - 1) / total * score for i, score in enumerate(ordered, start=1))


def expected_best_with_replacement(scores: Sequence[float], draws: int) -> float:
    """Estimate the expected maximum of ``draws`` trials by drawing with replacement.

    Dodge et al. 2019, "Show Your Work", https://aclanthology.org/D19-1224: sum over i of
    ((i / n)^k - ((i - 1) / n)^k) v_i. It is biased downwards where ``draws`` is near the number of trials.

    Args:
        scores: one score per trial, in any order.
        draws: from 1 to the number of scores.

    Raises:
        ValueError: more draws than scores, or none.
    """
    ordered = _ordered(scores, draws)
    n = len(ordered)
    return sum(((i / n) ** draws - ((i - 1) / n) ** draws) * v for i, v in enumerate(ordered, start=1))


def _ordered(scores: Sequence[float], draws: int) -> list[float]:
    """Return the scores, lowest first."""
    if not 1 <= draws <= len(scores):
        raise ValueError(f"draws must be from 1 to the {len(scores)} trials, found {draws}")
    return sorted(scores)


def tuning_curve(trials: Sequence[TrialResult]) -> Table:
    """Compute the expected best validation BLEU of each model after 1, 2, ... trials.

    A failed trial counts as BLEU 0, as it gives nobody a usable model. Of a trial with several seeds the
    first counts: the others were trained because of its score.

    Args:
        trials: ended trials, as read by ``read_trials``.
    """
    rows: list[Row] = []
    for label, group in trials_by_label(trials).items():
        first = [candidate.results[0] for candidate in candidates(group)]
        scores, seconds = [trial.score for trial in first], fmean(trial.seconds for trial in first)
        rows += [
            {
                "label": label,
                "trials": draws,
                "expected_bleu": expected_best(scores, draws),
                "expected_bleu_with_replacement": expected_best_with_replacement(scores, draws),
                "expected_seconds": draws * seconds,
            }
            for draws in range(1, len(scores) + 1)
        ]
    return Table(
        "Validation BLEU that the best of so many random trials is expected to have: without bias (Tang et "
        "al. 2020), and by drawing with replacement (Dodge et al. 2019). A failed trial counts as 0.",
        rows,
    )
