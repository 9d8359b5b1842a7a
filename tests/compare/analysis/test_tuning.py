"""Expected best scores against enumeration of all draws."""

from itertools import combinations, product
from statistics import fmean

import pytest

from compare.analysis.tuning import expected_best, expected_best_with_replacement, tuning_curve
from compare.experiment.tune import TrialResult

SCORES = [3.0, 11.5, 0.0, 7.25, 7.25, 20.0]


@pytest.mark.parametrize("draws", range(1, 7))
def test_the_estimators_are_means_over_all_draws(draws: int):
    """Without replacement: over all subsets; with: over all sequences."""
    subsets = fmean(max(subset) for subset in combinations(SCORES, draws))
    sequences = fmean(max(sequence) for sequence in product(SCORES, repeat=draws))
    assert expected_best(SCORES, draws) == pytest.approx(subsets, rel=1e-12)
    assert expected_best_with_replacement(SCORES, draws) == pytest.approx(sequences, rel=1e-12)


def test_the_ends_of_the_curve():
    assert (
        expected_best(SCORES, 1) == expected_best_with_replacement(SCORES, 1) == pytest.approx(fmean(SCORES))
    )
    assert expected_best(SCORES, 6) == pytest.approx(20)
    assert expected_best_with_replacement(SCORES, 6) < 20  # its bias
    assert expected_best([5.0] * 2000, 1000) == pytest.approx(5)  # binomials beyond a float


@pytest.mark.parametrize("draws", [0, 7])
def test_more_draws_than_trials(draws: int):
    for estimator in (expected_best, expected_best_with_replacement):
        with pytest.raises(ValueError, match="from 1 to the 6 trials"):
            estimator(SCORES, draws)


def test_a_failed_trial_counts_as_nothing():
    trials = [
        TrialResult(
            label=label,
            trial=number,
            settings={},
            status="done" if bleu is not None else "diverged",
            bleu=bleu,
            loss=bleu,
            best_update=None if bleu is None else 1,
            updates=5,
            seconds=2.0 * number,
            code_version="test",
            reason=None if bleu is not None else "why",
        )
        for label, scores in {"a": [4.0, None], "b": [6.0, 8.0]}.items()
        for number, bleu in enumerate(scores, start=1)
    ]
    rows = tuning_curve(trials).rows
    assert [(row["label"], row["trials"], row["expected_bleu"]) for row in rows] == [
        ("a", 1, 2.0),
        ("a", 2, 4.0),
        ("b", 1, 7.0),
        ("b", 2, 8.0),
    ]
    assert [row["expected_bleu_with_replacement"] for row in rows] == [2.0, 3.0, 7.0, 7.5]
    assert [row["expected_seconds"] for row in rows] == [3.0, 6.0, 3.0, 6.0]
