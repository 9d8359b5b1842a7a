"""Coverage of the 95% intervals for a known true difference, over simulated test sets and seeds.

M experiments, k seeds and N sentences each, R resamples.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest

from compare.analysis.intervals import bootstrap_draws, confidence_intervals, estimate_variances, t_quantile
from compare.analysis.statistics import FloatArray, bleu

M, N, R = 1000, 100, 200
TRUTH = 1.5
DRAWS = bootstrap_draws(N, R)


class Experiments(NamedTuple):
    """Simulated differences between two models, with and without each source of variation."""

    scores: FloatArray
    """(M, k)."""
    resampled: FloatArray
    """(M, k, R)."""
    same_models: FloatArray
    """Expected differences of these seeds over all sentences, (M,)."""
    same_sentences: FloatArray
    """Expected differences over all seeds on these sentences, (M,)."""


def simulate(k: int, seeds: float, sentences: float, interaction: float) -> Experiments:
    """Simulate differences that are means over sentences.

    The arguments are the variances that each source contributes to the score of one seed.
    """
    rng = np.random.default_rng(k)
    of_seed = rng.normal(scale=math.sqrt(seeds), size=(M, k, 1))
    of_sentence = rng.normal(scale=math.sqrt(N * sentences), size=(M, 1, N))
    of_both = rng.normal(scale=math.sqrt(N * interaction), size=(M, k, N))
    values = TRUTH + of_seed + of_sentence + of_both
    return Experiments(
        values.mean(axis=2),
        values @ DRAWS.T / N,
        TRUTH + of_seed.mean(axis=(1, 2)),
        TRUTH + of_sentence.mean(axis=(1, 2)),
    )


def coverage(limits: list[tuple[float, float]], truth: FloatArray | float) -> float:
    low, high = np.array(limits).T
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.parametrize(
    ("k", "least", "most"), [(2, 0.95, 0.99), (3, 0.95, 0.99), (5, 0.93, 0.97), (10, 0.93, 0.97)]
)
@pytest.mark.parametrize(
    ("seeds", "sentences", "interaction"),
    [(0.3, 1, 0), (1, 1, 0), (4, 1, 0), (1, 0.09, 0), (1, 0.09, 0.09), (0.1, 0.3, 0.3)],
)
def test_combined_interval_has_95_percent_coverage(
    k: int, least: float, most: float, seeds: float, sentences: float, interaction: float
):
    """At least 95% and at most 99% with few seeds, 95 +- 2% with more; simulated shares vary by 1.3%."""
    simulated = simulate(k, seeds, sentences, interaction)
    intervals = [
        confidence_intervals(scores, resampled, N)
        for scores, resampled in zip(simulated.scores, simulated.resampled, strict=True)
    ]
    assert least - 0.013 <= coverage([each.combined for each in intervals], TRUTH) <= most + 0.005


@pytest.mark.parametrize("k", [2, 3])
def test_satterthwaite_would_cover_too_little_where_seeds_dominate(k: int):
    simulated = simulate(k, 1, 0.09, 0)
    limits = []
    for scores, resampled in zip(simulated.scores, simulated.resampled, strict=True):
        variances = estimate_variances(scores, resampled)
        squares = (variances.seeds**2 / (k - 1) + variances.sentences**2 / (N - 1), variances.total**2)
        half = t_quantile(max(squares[1] / squares[0], k - 1)) * math.sqrt(variances.total)
        limits.append((scores.mean() - half, scores.mean() + half))
    assert coverage(limits, TRUTH) < 0.93


@pytest.mark.parametrize("k", [3, 10])
def test_each_interval_covers_its_own_source_of_variation_only(k: int):
    simulated = simulate(k, 4, 1, 0.3)
    intervals = [
        confidence_intervals(scores, resampled, N)
        for scores, resampled in zip(simulated.scores, simulated.resampled, strict=True)
    ]
    test_set, seeds, combined = ([each[i] for each in intervals] for i in range(3))
    assert 0.92 <= coverage(test_set, simulated.same_models) <= 0.97
    assert 0.92 <= coverage(seeds, simulated.same_sentences) <= 0.97
    assert coverage(test_set, TRUTH) < 0.92
    assert coverage(seeds, TRUTH) < coverage(combined, TRUTH)


def hierarchical(resampled: FloatArray) -> tuple[float, float]:
    """Return the interval of a plain hierarchical bootstrap, which draws seeds, then sentences."""
    k = len(resampled)
    drawn_seeds = np.random.default_rng(0).integers(k, size=(R, k))
    low, high = np.quantile(resampled[drawn_seeds, np.arange(R)[:, None]].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def test_a_plain_hierarchical_bootstrap_of_3_seeds_has_too_low_coverage():
    """It treats the three seeds as the population, which underestimates their variance by a third."""
    simulated = simulate(3, 4, 1, 0)
    assert coverage([hierarchical(resampled) for resampled in simulated.resampled], TRUTH) < 0.9


def bleu_counts(rng: np.random.Generator, skill: FloatArray) -> FloatArray:
    """Simulate BLEU statistics (..., N, 10) of sentences of 8 to 20 words, given ``skill`` (..., N)."""
    lengths = rng.integers(8, 21, size=skill.shape[-1])
    totals = np.broadcast_to(lengths[:, None] - np.arange(4), (*skill.shape, 4))
    matches = rng.binomial(totals, 1 / (1 + np.exp(0.7 * np.arange(4) - skill[..., None])))
    both_lengths = np.broadcast_to(lengths[:, None], (*skill.shape, 2))
    return np.concatenate([matches, totals, both_lengths], axis=-1).astype(float)


def skills(rng: np.random.Generator, models: FloatArray, sentences: int) -> FloatArray:
    """Simulate the skill (..., 2, N) of ``models`` (..., 2) on sentences hard for both or for one."""
    hard = rng.normal(scale=0.5, size=sentences)
    for_one = rng.normal(scale=0.3, size=(2, sentences))
    return models[..., None] + hard + for_one


def difference(counts: FloatArray) -> FloatArray:
    """Compute BLEU of the first model minus BLEU of the second, from statistics (..., 2, N, 10)."""
    scores = bleu(counts.sum(axis=-2))
    return scores[..., 0] - scores[..., 1]


SKILL, SKILL_SD = np.array([0.5, 0.35]), 0.05
"""Mean skill of the two models, and its standard deviation over seeds."""


@pytest.fixture(scope="module")
def true_difference() -> float:
    """The difference in BLEU on 10,000 sentences, averaged over a grid of seeds."""
    rng = np.random.default_rng(0)
    grid = [NormalDist(0, SKILL_SD).inv_cdf((i + 0.5) / 20) for i in range(20)]
    counts_of_seeds = (bleu_counts(rng, skills(rng, SKILL + point, 10_000)) for point in grid)
    return float(np.mean([difference(counts) for counts in counts_of_seeds]))


@pytest.mark.parametrize("k", [3, 5, 10])
def test_combined_interval_covers_true_bleu_differences(k: int, true_difference: float):
    rng = np.random.default_rng(k)
    combined = []
    for _ in range(M // 2):
        counts = bleu_counts(rng, skills(rng, SKILL + rng.normal(scale=SKILL_SD, size=(k, 2)), N))
        resampled = bleu(DRAWS @ counts)  # (k, 2, R)
        combined.append(
            confidence_intervals(difference(counts), resampled[:, 0] - resampled[:, 1], N).combined
        )
    assert 0.92 <= coverage(combined, true_difference) <= 0.98
