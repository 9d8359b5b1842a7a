"""Pareto fronts, and random search."""

from itertools import combinations
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from compare.analysis.efficiency import expected_best, pareto, pareto_front, tuning_curve
from compare.analysis.finished_experiment import Spread
from compare.experiment.tune import TrialResult
from tests.kits.experiments import make_finished, pairs

LINES = pairs(("a", "x"))


def test_a_pareto_front_by_hand():
    """(2, 3) and (1, 1) are dominated by (2, 4), (0, 5) by (1, 5); the equal points (3, 1) are both on it."""
    points = [(1, 5), (2, 4), (2, 3), (3, 1), (3, 1), (0, 5), (1, 1)]
    assert pareto_front(points) == [True, True, False, True, True, False, False]
    # The speeds of the first and the second overlap, and those of the second and the third, which is slower
    # than the first.
    spreads = [Spread(11, 14), Spread(9, 12), Spread(7, 9)]
    assert pareto_front([(12, 20.0), (10, 30.0), (8, 25.0)], spreads) == [False, True, False]


def test_models_on_the_fronts_of_speed_and_size(tmp_path: Path):
    figures = {
        ("slow", 1): (30.0, 10.0, 900),
        ("slow", 2): (34.0, 14.0, 900),
        ("fast", 1): (20.0, 99.0, 900),
        ("small", 1): (20.0, 50.0, 100),
        ("lost", 1): (50.0, None, 100),
        ("worse", 1): (19.0, 50.0, 100),
    }
    names = ("bleu", "beam_sentences_per_s", "params")
    finished = make_finished(
        tmp_path,
        train=LINES,
        tests={"test": LINES},
        outputs={run: {"test": ["x"]} for run in figures},
        results={run: dict(zip(names, values, strict=True)) for run, values in figures.items()},
    )
    rows = pareto(finished).rows
    assert [(row["label"], row["speed_front"], row["size_front"]) for row in rows] == [
        ("slow", True, True),
        ("fast", True, False),  # equal to "small", but larger
        ("small", False, True),
        ("worse", False, False),
    ]
    slow = {"label": "slow", "seeds": 2, "bleu": 32, "bleu_low": 30, "bleu_high": 34, "params": 900}
    speed = {"beam_sentences_per_s": 12, "beam_sentences_per_s_low": 10, "beam_sentences_per_s_high": 14}
    assert rows[0].items() >= (slow | speed).items()


SCORES = [3.0, 11.5, 0.0, 7.25, 7.25, 20.0]


@pytest.mark.parametrize("draws", range(1, 7))
def test_the_estimator_is_the_mean_over_all_subsets(draws: int):
    subsets = fmean(max(subset) for subset in combinations(SCORES, draws))
    assert expected_best(SCORES, draws) == pytest.approx(subsets, rel=1e-12)


def test_a_failed_trial_counts_as_nothing():
    names = ("label", "trial", "settings", "status", "bleu", "loss", "best_update", "updates", "seconds")
    values = ("a", 1, {}, "done", 4.0, 4.0, 1, 5, 2.0)
    one = TrialResult(**dict(zip(names, values, strict=True)), code_version="test")
    failed = {"status": "failed", "bleu": None, "loss": None, "best_update": None, "reason": "why"}
    trials = [
        one,
        msgspec.structs.replace(one, trial=2, seconds=4.0, **failed),
        msgspec.structs.replace(one, label="b", bleu=6.0),
        msgspec.structs.replace(one, label="b", trial=2, seconds=4.0, bleu=8.0),
    ]
    rows = tuning_curve(trials).rows
    assert [tuple(row.values()) for row in rows] == [
        ("a", 1, 2.0, 3.0),
        ("a", 2, 4.0, 6.0),
        ("b", 1, 7.0, 3.0),
        ("b", 2, 8.0, 6.0),
    ]
    assert expected_best([5.0] * 2000, 1000) == pytest.approx(5)  # binomials beyond a float
