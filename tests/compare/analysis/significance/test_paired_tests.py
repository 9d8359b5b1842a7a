"""Paired tests for one seed and for several, and Holm's correction."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.significance.bleu_statistics import bleu, sentence_counts
from compare.analysis.significance.paired_tests import all_seeds_p, holm_correction, paired_test_p
from compare.analysis.significance.scored_tests import ScoredRun, score_test_set

REFERENCES = [f"the {noun} sat on the {place} {i}" for i in range(10) for noun in "ab" for place in "cd"]
METRIC = BLEU(references=[REFERENCES])


def with_errors(wrong: int, start: int = 0) -> list[str]:
    """Return the references with one wrong word in ``wrong`` lines from line ``start`` on."""
    lines = list(REFERENCES)
    for index in range(start, start + wrong):
        lines[index] = lines[index].replace("sat", "stood")
    return lines


def runs(*texts: list[str]) -> list[ScoredRun]:
    scored = score_test_set(
        "test", REFERENCES, {str(i): {1: text} for i, text in enumerate(texts)}, resamples=9
    )
    return [by_seed[1] for by_seed in scored.models.values()]


@pytest.mark.parametrize("kind", ["ar", "bs"])
def test_the_smallest_p_is_one_in_samples_plus_one(kind: str):
    assert paired_test_p(REFERENCES, ["x"] * 40, METRIC, kind, 199) == pytest.approx(1 / 200)
    assert paired_test_p(REFERENCES, ["x"] * 40, METRIC, kind, 49) == pytest.approx(1 / 50)


@pytest.mark.parametrize("kind", ["ar", "bs"])
def test_p_does_not_depend_on_the_order_of_models_or_the_environment(kind: str, monkeypatch):
    first, second = with_errors(10), with_errors(7, start=20)
    p = paired_test_p(first, second, METRIC, kind, 300)
    assert 0.05 < p < 1
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    assert paired_test_p(second, first, METRIC, kind, 300) == p


def test_randomisation_approximates_the_exact_test():
    """Nine sentences differ, so there are 512 shuffles, all equally likely under the null hypothesis."""
    first, second = with_errors(6), with_errors(3, start=30)
    a, b = (sentence_counts(lines, REFERENCES) for lines in (first, second))
    observed = abs(bleu(a.sum(axis=0)) - bleu(b.sum(axis=0)))
    differing = np.flatnonzero((a != b).any(axis=1))
    beyond = 0
    for swapped in itertools.product([False, True], repeat=len(differing)):
        swap = (b - a)[differing[list(swapped)]].sum(axis=0)
        beyond += abs(bleu(a.sum(axis=0) + swap) - bleu(b.sum(axis=0) - swap)) > observed + 1e-9
    share = beyond / 2 ** len(differing)
    assert 0.05 < share < 0.95
    assert paired_test_p(first, second, METRIC, "ar", 4000) == pytest.approx(share, abs=0.03)


def test_bootstrap_and_randomisation_are_two_tests():
    first, second = with_errors(12), with_errors(6, start=20)
    assert paired_test_p(first, second, METRIC, "ar", 500) != paired_test_p(first, second, METRIC, "bs", 500)


def test_p_over_seeds_is_the_largest_p():
    clear, close = (with_errors(0), with_errors(20)), (with_errors(9), with_errors(12, start=15))
    single = [paired_test_p(*pair, METRIC, "ar", 200) for pair in (clear, close)]
    assert single[0] < 0.05 < single[1]
    for pairs in ((clear, close), (close, clear)):
        assert all_seeds_p([tuple(runs(*pair)) for pair in pairs], METRIC, "ar", 200) == single[1]
    assert all_seeds_p([tuple(runs(*clear))], METRIC, "ar", 200) == single[0]


def test_p_is_one_if_seeds_disagree():
    good, bad = runs(with_errors(0), with_errors(20))
    assert all_seeds_p([(good, bad), (bad, good)], METRIC, "ar", 100) == 1
    assert all_seeds_p([(good, bad), (bad, bad)], METRIC, "ar", 100) == 1
    assert all_seeds_p([(bad, good), (bad, good)], METRIC, "ar", 100) < 0.05


@pytest.mark.parametrize("kind", ["ar", "bs"])
def test_equal_outputs_do_not_differ_significantly(kind: str):
    """sacrebleu alone reports a small p, because no shuffle exceeds a difference of 0."""
    one, again = runs(with_errors(5), with_errors(5))
    assert paired_test_p(one.lines, again.lines, METRIC, kind, 200) < 0.05
    assert all_seeds_p([(one, again)], METRIC, kind, 200) == 1


@pytest.mark.parametrize(("differing", "least"), [(1, 1), (2, 1 / 2), (4, 1 / 8), (7, 1 / 64)])
def test_the_smallest_p_depends_on_the_number_of_differing_sentences(differing: int, least: float):
    """All differences favour one model: p = 2 / 2^d, as in a sign test."""
    pair = tuple(runs(with_errors(0), with_errors(differing)))
    assert paired_test_p(pair[0].lines, pair[1].lines, METRIC, "ar", 999) < least
    assert all_seeds_p([pair], METRIC, "ar", 999) == least


def test_holm_matches_hand_computation():
    """Factors 4, 3, 2, 1 in rising order; .04 is raised to the corrected value before it."""
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.7, 0.6]) == pytest.approx([1, 1])
    assert holm_correction([0.03]) == [0.03]
    assert holm_correction([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_is_between_no_correction_and_bonferroni(p_values: list[float], rng):
    corrected_p = holm_correction(p_values)
    for p, corrected in zip(p_values, corrected_p, strict=True):
        assert p <= corrected <= min(1, len(p_values) * p)
    order = rng.sample(range(len(p_values)), len(p_values))
    assert holm_correction([p_values[i] for i in order]) == [corrected_p[i] for i in order]
    by_size = sorted(zip(p_values, corrected_p, strict=True))
    assert [corrected for _, corrected in by_size] == sorted(corrected_p)
