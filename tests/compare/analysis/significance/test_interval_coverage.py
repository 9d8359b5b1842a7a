"""How often the 95% intervals hold a difference that is known: many made-up test sets and sets of seeds.

M experiments, each of k seeds and N sentences, R resamples.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest

from compare.analysis.significance.bleu_statistics import FloatArray, bleu, bootstrap_draws
from compare.analysis.significance.intervals import confidence_intervals

M, N, R = 1000, 100, 200
TRUTH = 1.5
DRAWN = bootstrap_draws(N, R)


class Experiments(NamedTuple):
    """Differences between two models, as found and as they would be without one or both sources of chance."""

    scores: FloatArray
    """(M, k)."""
    resampled: FloatArray
    """(M, k, R)."""
    same_models: FloatArray
    """What these seeds come to on all sentences, (M,)."""
    same_sentences: FloatArray
    """What all seeds come to on these sentences, (M,)."""


def experiments(k: int, seeds: float, sentences: float, interplay: float) -> Experiments:
    """Differences, linear in their sentences; each source of chance by its variance in one seed's score."""
    rng = np.random.default_rng(k)
    of_seed = rng.normal(scale=math.sqrt(seeds), size=(M, k, 1))
    of_sentence = rng.normal(scale=math.sqrt(N * sentences), size=(M, 1, N))
    of_both = rng.normal(scale=math.sqrt(N * interplay), size=(M, k, N))
    values = TRUTH + of_seed + of_sentence + of_both
    return Experiments(
        values.mean(axis=2),
        values @ DRAWN.T / N,
        TRUTH + of_seed.mean(axis=(1, 2)),
        TRUTH + of_sentence.mean(axis=(1, 2)),
    )


def coverage(found: list[tuple[float, float]], truth: FloatArray | float) -> float:
    low, high = np.array(found).T
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.parametrize("k", [3, 5, 10])
@pytest.mark.parametrize(
    ("seeds", "sentences", "interplay"), [(0.3, 1, 0), (1, 1, 0), (4, 1, 0), (1, 0.3, 0.3), (0.1, 0.3, 0.3)]
)
def test_combined_interval_holds_95_of_100_times(k: int, seeds: float, sentences: float, interplay: float):
    made = experiments(k, seeds, sentences, interplay)
    found = [
        confidence_intervals(scores, resampled, N) for scores, resampled in zip(made[0], made[1], strict=True)
    ]
    assert 0.92 <= coverage([each.combined for each in found], TRUTH) <= 0.98


@pytest.mark.parametrize("k", [3, 10])
def test_each_interval_answers_its_own_question_and_only_that(k: int):
    made = experiments(k, 4, 1, 0.3)
    found = [
        confidence_intervals(scores, resampled, N) for scores, resampled in zip(made[0], made[1], strict=True)
    ]
    test_set, seeds, combined = ([each[i] for each in found] for i in range(3))
    assert 0.92 <= coverage(test_set, made.same_models) <= 0.97
    assert 0.92 <= coverage(seeds, made.same_sentences) <= 0.97
    assert coverage(test_set, TRUTH) < 0.92
    assert coverage(seeds, TRUTH) < coverage(combined, TRUTH)


def hierarchical(resampled: FloatArray) -> tuple[float, float]:
    """The plain hierarchical bootstrap: k seeds drawn with replacement and then a resample for them."""
    k = len(resampled)
    picked = np.random.default_rng(0).integers(k, size=(R, k))
    low, high = np.quantile(resampled[picked, np.arange(R)[:, None]].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def test_a_plain_hierarchical_bootstrap_holds_too_rarely_at_3_seeds():
    """It draws seeds as if the three were all: their variance comes out a third too small."""
    made = experiments(3, 4, 1, 0)
    assert coverage([hierarchical(resampled) for resampled in made.resampled], TRUTH) < 0.9


def bleu_counts(rng: np.random.Generator, skill: FloatArray) -> FloatArray:
    """Counts (..., N, 10) of sentences of 8 to 20 words whose n-grams are right by ``skill`` (..., N)."""
    lengths = rng.integers(8, 21, size=skill.shape[-1])
    totals = np.broadcast_to(lengths[:, None] - np.arange(4), (*skill.shape, 4))
    matches = rng.binomial(totals, 1 / (1 + np.exp(0.7 * np.arange(4) - skill[..., None])))
    both_lengths = np.broadcast_to(lengths[:, None], (*skill.shape, 2))
    return np.concatenate([matches, totals, both_lengths], axis=-1).astype(float)


def skills(rng: np.random.Generator, models: FloatArray, sentences: int) -> FloatArray:
    """Skill (..., N) of ``models`` (..., 2) in sentences that are hard for both, or for one of them."""
    hard = rng.normal(scale=0.5, size=sentences)
    for_one = rng.normal(scale=0.3, size=(2, sentences))
    return models[..., None] + hard + for_one


def difference(counts: FloatArray) -> FloatArray:
    """BLEU of the first model less that of the second, from counts (..., 2, N, 10)."""
    scores = bleu(counts.sum(axis=-2))
    return scores[..., 0] - scores[..., 1]


SKILL, SPREAD = np.array([0.5, 0.35]), 0.05
"""Of the two models, and the standard deviation of a seed's."""


@pytest.fixture(scope="module")
def true_difference() -> float:
    """In BLEU of 10,000 sentences, the mean over a grid of seeds."""
    rng = np.random.default_rng(0)
    grid = [NormalDist(0, SPREAD).inv_cdf((i + 0.5) / 20) for i in range(20)]
    made = (bleu_counts(rng, skills(rng, SKILL + point, 10_000)) for point in grid)
    return float(np.mean([difference(counts) for counts in made]))


@pytest.mark.parametrize("k", [3, 5, 10])
def test_combined_interval_holds_true_bleu_differences(k: int, true_difference: float):
    rng = np.random.default_rng(k)
    found = []
    for _ in range(M // 2):
        counts = bleu_counts(rng, skills(rng, SKILL + rng.normal(scale=SPREAD, size=(k, 2)), N))
        resampled = bleu(DRAWN @ counts)  # (k, 2, R)
        found.append(confidence_intervals(difference(counts), resampled[:, 0] - resampled[:, 1], N).combined)
    assert 0.92 <= coverage(found, true_difference) <= 0.98
