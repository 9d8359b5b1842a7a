"""BLEU and chrF from sentence statistics, compared with sacrebleu; corrected p-values; intervals."""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.statistics import (
    FloatArray,
    Interval,
    SampledScore,
    Variances,
    bleu,
    bootstrap_draws,
    compare_files,
    confidence_intervals,
    estimate_variances,
    holm_correction,
    model_intervals,
    score_test_set,
    seed_interval,
    sentence_counts,
    t_quantile,
)
from compare.scoring import score_texts

SENTENCE = st.lists(st.sampled_from(["a", "b", "é", "d", ",", "."]), max_size=9).map(" ".join)
TEXTS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6)
"""Pairs of hypothesis and reference over few words, so that n-grams of all orders match now and then."""


def sacrebleu(hypotheses: list[str], references: list[str]) -> float:
    return min(BLEU().corpus_score(hypotheses, [references]).score, 100)


def test_statistics_by_hand():
    """Matches 5/5, 3/4, 2/3 and 1/2, lengths 5 and 6."""
    counts = sentence_counts(["the cat sat on mat"], ["the cat sat on the mat"])
    assert counts.tolist() == [[5, 6, 5, 3, 2, 1, 5, 4, 3, 2]]
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        sentence_counts(["a", "b"], ["a"])


@settings(max_examples=150, deadline=None)
@given(TEXTS)
@example([("", ""), ("a b c d e", "a b c d e")])
@example([("a b x c d", "a b y c d")])  # no 3-gram matches: they are smoothed
@example([("a b c", "a b c")])  # too short for a 4-gram to exist
def test_any_text_and_any_resample_scores_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    counts = sentence_counts(hypotheses, references)
    assert float(bleu(counts.sum(axis=0))) == pytest.approx(sacrebleu(hypotheses, references), abs=1e-9)
    (times,) = bootstrap_draws(len(pairs), 1).astype(int)
    lines = [pair for pair, count in zip(pairs, times, strict=True) for _ in range(count)]
    drawn = sacrebleu([line for line, _ in lines], [reference for _, reference in lines])
    assert float(bleu(times @ counts)) == pytest.approx(drawn, abs=1e-9)
    sums = np.stack([counts.sum(axis=0), times @ counts])  # any number of sums at once
    assert bleu(sums).tolist() == pytest.approx([float(bleu(row)) for row in sums], rel=1e-12)


def test_a_resample_has_the_size_of_the_test_set_and_is_uniform():
    """The draws of a sentence are binomial with mean 2000 and standard deviation 44."""
    draws = bootstrap_draws(40, 2000)
    assert (draws.sum(axis=1) == 40).all()
    assert np.abs(draws.sum(axis=0) - 2000).max() < 5 * 44


def test_holm_matches_hand_computation():
    """Factors 4, 3, 2, 1 in rising order; .04 is raised to the corrected value before it."""
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.7, 0.6]) == pytest.approx([1, 1])
    assert holm_correction([]) == []


def test_files_that_differ_are_told_from_those_that_do_not(tmp_path: Path):
    """p is that of all exchanges, enumerated, up to the trials; two equal files have 1."""
    references = [
        f"the {word} house stands near the river" for word in ("old", "red", "big", "low", "new", "wet")
    ]
    texts = {
        "good": [*references[:5], "the wet house stands there"],
        "same": [*references[:5], "the wet house stands there"],
        "bad": [f"a {line.split()[1]} house stands near a river" for line in references],
    }
    for name, lines in {**texts, "ref": references}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = [tmp_path / name for name in texts]
    same, first, second = compare_files(files, [tmp_path / "ref"])

    def differ(swaps: Sequence[bool]) -> float:
        pairs = zip(texts["good"], texts["bad"], swaps, strict=True)
        one, other = zip(*((b, a) if swap else (a, b) for a, b, swap in pairs), strict=True)
        return sacrebleu(list(one), references) - sacrebleu(list(other), references)

    everything = [abs(differ(swaps)) for swaps in product((False, True), repeat=6)]
    exact = sum(value >= everything[0] - 1e-9 for value in everything) / len(everything)
    assert exact < 0.05
    assert (same.difference, same.p) == (0, 1)
    assert (first.first, first.second) == (str(files[0]), str(files[2]))
    assert first.difference == pytest.approx(differ([False] * 6))
    assert first.p == second.p == pytest.approx(3 * exact, rel=0.15)  # Holm, of three
    assert [pair.p for pair in compare_files([files[0], files[0]], [tmp_path / "ref"])] == [1]
    (tmp_path / "short").write_text("one line\n")
    with pytest.raises(ValueError, match=r"short has 1 lines, but \S*ref has 6"):
        compare_files([files[0], tmp_path / "short"], [tmp_path / "ref"])


# The three intervals by hand and by simulation.

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
    return scored.models["a"][1]


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


@pytest.mark.parametrize(("k", "least", "most"), [(2, 0.95, 0.99), (10, 0.93, 0.97)])
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
    intervals = [confidence_intervals(*pair, N) for pair in zip(scores, resampled, strict=True)]
    test_set, seeds, combined = ([triple[i] for triple in intervals] for i in range(3))
    assert 0.92 <= coverage(test_set, same_models) <= 0.97
    assert 0.92 <= coverage(seeds, same_sentences) <= 0.97
    assert coverage(test_set, TRUTH) < 0.92
    assert coverage(seeds, TRUTH) < coverage(combined, TRUTH)
