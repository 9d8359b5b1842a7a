"""The three intervals, compared with hand computation and with sacrebleu."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.analysis.intervals import (
    Interval,
    Intervals,
    SampledScore,
    Variances,
    bootstrap_draws,
    combined_half_width,
    confidence_intervals,
    estimate_variances,
    model_intervals,
    seed_interval,
    t_quantile,
)
from compare.analysis.statistics import bleu, sentence_counts
from compare.scoring.score import score_texts

REFERENCES = [
    "the cat sat on the mat .",
    "a dog ran over the old road .",
    "we saw it rain all day long .",
] * 8


def with_errors(share: float, seed: int = 0) -> list[str]:
    """Return the references with a share of their words replaced by a wrong one."""
    rng = np.random.default_rng(seed)
    return [" ".join("x" if rng.random() < share else word for word in line.split()) for line in REFERENCES]


def run_of(lines: list[str], resamples: int = 200) -> SampledScore:
    counts = sentence_counts(lines, REFERENCES)
    resampled = bleu(bootstrap_draws(len(REFERENCES), resamples) @ counts)
    return SampledScore(counts=counts, score=float(bleu(counts.sum(axis=0))), resampled=resampled)


def difference_intervals(pairs: list[tuple[SampledScore, SampledScore]]) -> Intervals:
    differences = np.array([first.score - second.score for first, second in pairs])
    resampled = np.stack([first.resampled - second.resampled for first, second in pairs])
    return confidence_intervals(differences, resampled, len(REFERENCES))


@pytest.mark.parametrize(("dof", "table"), [(1, 12.706), (3, 3.182), (10, 2.228), (120, 1.980)])
def test_t_quantile_equals_published_tables(dof: int, table: float):
    assert t_quantile(dof) == pytest.approx(table, abs=0.0005)


def test_one_seed_has_the_interval_of_its_result_only():
    """The tables of runs and of models show it under one name, so it must be the same."""
    lines = with_errors(0.2)
    score = score_texts(lines, REFERENCES, n_bootstrap=200)
    intervals = model_intervals([run_of(lines)])
    assert intervals.test_set == pytest.approx(
        (score.bleu_ci_low, score.bleu_ci_high), abs=1e-3
    )  # float32 in the score
    assert intervals[1:] == (None, None)
    assert difference_intervals([(run_of(lines), run_of(with_errors(0.1)))])[1:] == (None, None)


def test_intervals_match_hand_computation():
    """Three seeds change by the same amount in each resample, so there is no interaction.

    Seeds: standard deviation 2, so the variance of the mean is 2²/3. Sentences: resamples alternate -3 and 3.
    """
    scores, changes = np.array([10.0, 12.0, 14.0]), np.tile([-3.0, 3.0], 100)
    intervals = confidence_intervals(scores, scores[:, None] + changes, sentences=50)
    assert intervals.test_set == (9, 15)
    seeds, sentences = 4 / 3, 9 * 200 / 199
    half = t_quantile(2) * math.sqrt(seeds)
    assert intervals.seeds == pytest.approx((12 - half, 12 + half), rel=1e-12)
    dof = (seeds + sentences) / (seeds / 2 + sentences / 49)
    half = t_quantile(dof) * math.sqrt(seeds + sentences)
    assert intervals.combined == pytest.approx((12 - half, 12 + half), rel=1e-12)
    assert seed_interval(scores.tolist()) == pytest.approx(intervals.seeds, rel=1e-12)
    assert seed_interval([12.0]) is None


def test_interaction_is_counted_once():
    """Two seeds change in opposite directions: each has variance x, their mean 0; x/2 is subtracted."""
    scores, changes = np.array([10.0, 14.0]), np.tile([-1.0, 1.0], 100)
    intervals = confidence_intervals(scores, scores[:, None] + np.stack([changes, -changes]), sentences=50)
    assert intervals.test_set == (12, 12)
    variances = estimate_variances(scores, scores[:, None] + np.stack([changes, -changes]))
    assert variances == pytest.approx((0, 8 / 2, 200 / 199))
    assert variances.total == pytest.approx(8 / 2 - 200 / 199)
    # All variance is that of the seeds, so that the combined interval is theirs.
    assert intervals.combined == pytest.approx(intervals.seeds)
    # Where seeds differ less than the interaction explains, the sentences have all of the variance.
    assert Variances(0.5, 0.3, 0.4).total == 0.5


def test_the_combined_interval_has_the_limits_of_both_sources():
    """With one source alone it is that source's interval; with both it is wider than either."""
    seeds, sentences = (combined_half_width(Variances(*pair, 0), 3, 500) for pair in ((0, 2), (2, 0)))
    assert seeds == pytest.approx(t_quantile(2) * math.sqrt(2))
    assert sentences == pytest.approx(t_quantile(499) * math.sqrt(2))
    for share in np.linspace(0, 1, 101):
        both = combined_half_width(Variances(2 - 2 * share, 2 * share, 0), 3, 500)
        assert both >= max(t_quantile(2) * math.sqrt(2 * share), sentences * math.sqrt(1 - share)) - 1e-12


def test_where_nothing_varies_intervals_are_points():
    perfect = [run_of(REFERENCES)] * 3
    assert model_intervals(perfect) == (pytest.approx((100, 100)),) * 3
    assert difference_intervals([(run, run) for run in perfect]) == ((0, 0),) * 3
    one = SampledScore(counts=np.ones((1, 10), dtype=int), score=100.0, resampled=np.full(9, 100.0))
    assert model_intervals([one] * 2).combined == (100, 100)


def test_model_intervals_are_clipped_and_difference_intervals_are_not():
    """A perfect and a useless seed: the interval of t with one degree of freedom is very wide."""
    runs = [run_of(REFERENCES), run_of(with_errors(0.9))]
    intervals = model_intervals(runs)
    assert (intervals.seeds, intervals.combined) == (Interval(0, 100), Interval(0, 100))
    low, high = difference_intervals([(run, run_of(with_errors(0.9))) for run in runs]).seeds
    assert low < 0
    assert high > 100


def test_difference_intervals_are_antisymmetric():
    runs = [(run_of(with_errors(0.1, seed)), run_of(with_errors(0.3, seed))) for seed in range(3)]
    forward, backward = difference_intervals(runs), difference_intervals([(b, a) for a, b in runs])
    assert forward.test_set.low > 0
    for interval, opposite in zip(forward, backward, strict=True):
        assert interval == pytest.approx((-opposite.high, -opposite.low))


SCORES = st.lists(st.floats(0, 100), min_size=2, max_size=5)


@settings(max_examples=50, deadline=None)
@given(SCORES, st.floats(-50, 50), st.floats(0.1, 10), st.randoms(use_true_random=False))
def test_intervals_are_equivariant_and_ignore_the_order_of_seeds(scores, shift, scale, rng):
    """Intervals of a + b x are a + b times those of x."""
    noise = np.random.default_rng(5).normal(size=(len(scores), 40))
    values = np.array(scores)
    order = rng.sample(range(len(scores)), len(scores))
    plain = confidence_intervals(values, values[:, None] + noise, sentences=30)
    other = confidence_intervals(
        (shift + scale * values)[order], (shift + scale * (values[:, None] + noise))[order], sentences=30
    )
    for interval, transformed in zip(plain, other, strict=True):
        expected = (shift + scale * interval.low, shift + scale * interval.high)
        assert transformed == pytest.approx(expected, abs=1e-7)


def test_column_names_of_intervals():
    columns = Intervals(Interval(1, 2), Interval(3, 4), None).columns("bleu", "_long")
    assert columns == {
        "bleu_test_set_low_long": 1,
        "bleu_test_set_high_long": 2,
        "bleu_seeds_low_long": 3,
        "bleu_seeds_high_long": 4,
        "bleu_combined_low_long": None,
        "bleu_combined_high_long": None,
    }
