"""The three intervals against paper and pencil, against sacrebleu's, and by how often they hold."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.analysis.significance.bleu_statistics import bleu, bootstrap_draws, sentence_counts
from compare.analysis.significance.intervals import (
    Interval,
    Intervals,
    confidence_intervals,
    difference_intervals,
    model_intervals,
)
from compare.analysis.significance.scored_tests import ScoredRun
from compare.analysis.significance.student_t import NORMAL_QUANTILE, t_quantile
from compare.scoring.score import score_texts

REFERENCES = [
    "the cat sat on the mat .",
    "a dog ran over the old road .",
    "we saw it rain all day long .",
] * 8


def spoilt(share: float, seed: int = 0) -> list[str]:
    """The references with a share of their words gone wrong."""
    rng = np.random.default_rng(seed)
    return [" ".join("x" if rng.random() < share else word for word in line.split()) for line in REFERENCES]


def run_of(lines: list[str], resamples: int = 200) -> ScoredRun:
    counts = sentence_counts(lines, REFERENCES)
    resampled = bleu(bootstrap_draws(len(REFERENCES), resamples) @ counts)
    return ScoredRun(lines=lines, references=REFERENCES, counts=counts, resampled=resampled)


@pytest.mark.parametrize(
    ("dof", "table"), [(3, 3.182), (5, 2.571), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)]
)
def test_t_is_that_of_the_tables(dof: int, table: float):
    assert t_quantile(dof) == pytest.approx(table, abs=0.0005)


def test_t_where_there_is_a_formula():
    """For 1, 2 and 4 degrees of freedom the distribution has an inverse in closed form."""
    assert t_quantile(1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-12)
    assert t_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-12)
    a = math.sqrt(4 * 0.975 * 0.025)
    assert t_quantile(4) == pytest.approx(2 * math.sqrt(math.cos(math.acos(a) / 3) / a - 1), rel=1e-12)
    assert t_quantile(1e6) == pytest.approx(NORMAL_QUANTILE, rel=3e-6)


@pytest.mark.parametrize("dof", [1.2, 1.9, 2.5, 7.3, 48.6])
def test_t_leaves_one_in_twenty_outside(dof: float):
    """The density, without its constant, added up in small steps; the tail by t = 1 / u."""
    t, steps = t_quantile(dof), 400_000
    inside = np.linspace(0, t, steps + 1)
    outside = np.linspace(0, 1 / t, steps + 1)[1:]
    inner = np.trapezoid((1 + inside**2 / dof) ** (-(dof + 1) / 2), inside)
    tail = np.trapezoid((1 + 1 / (outside**2 * dof)) ** (-(dof + 1) / 2) / outside**2, outside)
    assert inner / (inner + tail) == pytest.approx(0.95, abs=1e-6)


def test_t_falls_with_the_degrees_of_freedom_and_takes_no_fewer_than_one():
    assert all(left > right for left, right in pairwise(t_quantile(dof) for dof in np.linspace(1, 40, 200)))
    for dof in (0.99, 0, math.nan):
        with pytest.raises(ValueError, match="at least 1"):
            t_quantile(dof)


def test_one_seed_has_the_interval_of_its_row_and_no_other():
    """Named alike in the table of runs and in that of models, so it must be the same."""
    lines = spoilt(0.2)
    row = score_texts(lines, REFERENCES, n_bootstrap=200)
    found = model_intervals([run_of(lines)])
    assert found.test_set == pytest.approx((row.bleu_ci_low, row.bleu_ci_high), abs=1e-3)  # float32 there
    assert found[1:] == (None, None)
    assert difference_intervals([(run_of(lines), run_of(spoilt(0.1)))])[1:] == (None, None)


def test_intervals_match_hand_computation():
    """Three seeds that move together from one test set to another: no interplay to take out.

    Seeds: deviation 2, so 2²/3 about the mean. Sentences: resamples at -1 and 1 in turn.
    """
    scores, moves = np.array([10.0, 12.0, 14.0]), np.tile([-1.0, 1.0], 100)
    found = confidence_intervals(scores, scores[:, None] + moves, sentences=50)
    assert found.test_set == (11, 13)
    seeds, sentences = 4 / 3, 200 / 199
    half = t_quantile(2) * math.sqrt(seeds)
    assert found.seeds == pytest.approx((12 - half, 12 + half), rel=1e-12)
    dof = (seeds + sentences) ** 2 / (seeds**2 / 2 + sentences**2 / 49)
    half = t_quantile(dof) * math.sqrt(seeds + sentences)
    assert found.combined == pytest.approx((12 - half, 12 + half), rel=1e-12)


def test_what_both_variances_hold_is_counted_once():
    """Two seeds that move against each other: each has variance x, their mean none; x/2 is taken out."""
    scores, moves = np.array([10.0, 14.0]), np.tile([-1.0, 1.0], 100)
    found = confidence_intervals(scores, scores[:, None] + np.stack([moves, -moves]), sentences=50)
    assert found.test_set == (12, 12)
    variance = 8 / 2 - 200 / 199
    half = t_quantile(1) * math.sqrt(variance)
    assert found.combined == pytest.approx((12 - half, 12 + half), rel=1e-12)
    alike = confidence_intervals(
        np.array([12.0, 12.5]), scores[:, None] + np.stack([moves, -moves]), sentences=50
    )
    assert alike.combined == (12.25, 12.25)  # seeds differ by less than their sentences make them


def test_where_nothing_varies_intervals_are_points():
    perfect = [run_of(REFERENCES)] * 3
    assert model_intervals(perfect) == (pytest.approx((100, 100)),) * 3
    assert difference_intervals([(run, run) for run in perfect]) == ((0, 0),) * 3
    one = ScoredRun(lines=(), references=(), counts=np.ones((1, 10), dtype=int), resampled=np.full(9, 100.0))
    assert model_intervals([one] * 2).combined == (100, 100)


def test_a_model_stays_on_the_scale_and_a_difference_may_leave_it():
    """Two seeds, one perfect and one worthless: t with one degree of freedom reaches far out."""
    runs = [run_of(REFERENCES), run_of(spoilt(0.9))]
    found = model_intervals(runs)
    assert (found.seeds, found.combined) == (Interval(0, 100), Interval(0, 100))
    low, high = difference_intervals([(run, run_of(spoilt(0.9))) for run in runs]).seeds
    assert low < 0
    assert high > 100


def test_first_minus_second_is_minus_second_minus_first():
    runs = [(run_of(spoilt(0.1, seed)), run_of(spoilt(0.3, seed))) for seed in range(3)]
    forth, back = difference_intervals(runs), difference_intervals([(b, a) for a, b in runs])
    assert forth.test_set.low > 0
    for there, again in zip(forth, back, strict=True):
        assert there == pytest.approx((-again.high, -again.low))


SCORES = st.lists(st.floats(0, 100), min_size=2, max_size=5)


@settings(max_examples=50, deadline=None)
@given(SCORES, st.floats(-50, 50), st.floats(0.1, 10), st.randoms(use_true_random=False))
def test_intervals_follow_shift_and_scale_and_not_the_order_of_seeds(scores, shift, scale, rng):
    """Intervals of a + b x are a + b times those of x; which seed comes first is no information."""
    noise = np.random.default_rng(5).normal(size=(len(scores), 40))
    values = np.array(scores)
    order = rng.sample(range(len(scores)), len(scores))
    plain = confidence_intervals(values, values[:, None] + noise, sentences=30)
    other = confidence_intervals(
        (shift + scale * values)[order], (shift + scale * (values[:, None] + noise))[order], sentences=30
    )
    for here, there in zip(plain, other, strict=True):
        assert there == pytest.approx((shift + scale * here.low, shift + scale * here.high), abs=1e-7)


def test_columns_are_named_after_their_intervals():
    found = Intervals(Interval(1, 2), Interval(3, 4), None).columns("bleu", "_long")
    assert found == {
        "bleu_test_set_low_long": 1,
        "bleu_test_set_high_long": 2,
        "bleu_seeds_low_long": 3,
        "bleu_seeds_high_long": 4,
        "bleu_combined_low_long": None,
        "bleu_combined_high_long": None,
    }
