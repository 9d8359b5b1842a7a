"""The three intervals by hand and by simulation."""

import math

import numpy as np
import pytest

from compare.analysis.statistics import (
    FloatArray,
    Interval,
    SampledScore,
    Variances,
    bootstrap_draws,
    confidence_intervals,
    estimate_variances,
    model_intervals,
    score_test_set,
    seed_interval,
    t_quantile,
)
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


def run_of(lines: list[str]) -> SampledScore:
    scored = score_test_set("test", REFERENCES, {"a": {1: lines}}, resamples=200)
    return scored.models["a"][1].scores["bleu"]


def test_one_seed_has_the_interval_of_its_result_only():
    """The tables of runs and of models show it under one name, so it must be the same."""
    lines = with_errors(0.2)
    score = score_texts(lines, REFERENCES, n_bootstrap=200)
    intervals = model_intervals([run_of(lines)])
    ends = score.bleu_ci_low, score.bleu_ci_high
    assert intervals.test_set == pytest.approx(ends, abs=1e-3)  # float32 in the score
    assert intervals[1:] == (None, None)


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
    assert intervals.columns("bleu", "_long")["bleu_combined_low_long"] == intervals.combined.low


def test_interaction_is_counted_once():
    """Two seeds change in opposite directions: each has variance x, their mean 0; x/2 is subtracted."""
    scores, changes = np.array([10.0, 14.0]), np.tile([-1.0, 1.0], 100)
    resampled = scores[:, None] + np.stack([changes, -changes])
    intervals, variances = confidence_intervals(scores, resampled, 50), estimate_variances(scores, resampled)
    assert intervals.test_set == (12, 12)
    assert variances == pytest.approx((0, 8 / 2, 200 / 199))
    assert variances.total == pytest.approx(8 / 2 - 200 / 199)
    assert intervals.combined == pytest.approx(intervals.seeds)  # all variance is that of the seeds
    # Where seeds differ less than the interaction explains, the sentences have all of the variance.
    assert Variances(0.5, 0.3, 0.4).total == 0.5


def test_model_intervals_are_clipped():
    """A perfect and a useless seed: the interval of t with one degree of freedom is very wide."""
    intervals = model_intervals([run_of(REFERENCES), run_of(with_errors(0.9))])
    assert (intervals.seeds, intervals.combined) == (Interval(0, 100), Interval(0, 100))
    assert model_intervals([run_of(REFERENCES)] * 3) == (pytest.approx((100, 100)),) * 3


# Coverage: M experiments, k seeds and N sentences each, R resamples, of a known true difference.

M, N, R = 1000, 100, 200
TRUTH = 1.5
DRAWS = bootstrap_draws(N, R)


def simulate(k: int, seeds: float, sentences: float, interaction: float) -> tuple[FloatArray, ...]:
    """Simulate scores (M, k) that are means over sentences, and on resamples; the truths of each source.

    The arguments are the variances that each source contributes to the score of one seed.
    """
    rng = np.random.default_rng(k)
    of_seed = rng.normal(scale=math.sqrt(seeds), size=(M, k, 1))
    of_sentence = rng.normal(scale=math.sqrt(N * sentences), size=(M, 1, N))
    of_both = rng.normal(scale=math.sqrt(N * interaction), size=(M, k, N))
    values = TRUTH + of_seed + of_sentence + of_both
    same_models, same_sentences = TRUTH + of_seed.mean(axis=(1, 2)), TRUTH + of_sentence.mean(axis=(1, 2))
    return values.mean(axis=2), values @ DRAWS.T / N, same_models, same_sentences


def coverage(limits: list[Interval], truth: FloatArray | float) -> float:
    low, high = np.array(limits).T
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.parametrize(
    ("k", "least", "most"), [(2, 0.95, 0.99), (3, 0.95, 0.99), (5, 0.93, 0.97), (10, 0.93, 0.97)]
)
@pytest.mark.parametrize("sources", [(1, 1, 0), (4, 1, 0), (0.1, 0.3, 0.3)])
def test_combined_interval_has_95_percent_coverage(
    k: int, least: float, most: float, sources: tuple[float, float, float]
):
    """At least 95% and at most 99% with few seeds, 95 +- 2% with more; simulated shares vary by 1.3%."""
    scores, resampled, *_ = simulate(k, *sources)
    combined = [confidence_intervals(*pair, N).combined for pair in zip(scores, resampled, strict=True)]
    assert least - 0.013 <= coverage(combined, TRUTH) <= most + 0.005


def test_each_interval_covers_its_own_source_of_variation_only():
    scores, resampled, same_models, same_sentences = simulate(3, 4, 1, 0.3)
    found = [confidence_intervals(*pair, N) for pair in zip(scores, resampled, strict=True)]
    test_set, seeds, combined = ([each[i] for each in found] for i in range(3))
    assert 0.92 <= coverage(test_set, same_models) <= 0.97
    assert 0.92 <= coverage(seeds, same_sentences) <= 0.97
    assert coverage(test_set, TRUTH) < 0.92
    assert coverage(seeds, TRUTH) < coverage(combined, TRUTH)
