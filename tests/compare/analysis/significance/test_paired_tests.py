"""sacrebleu's paired tests as they are called here, what several seeds say, and Holm's correction."""

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


def spoilt(wrong: int, start: int = 0) -> list[str]:
    """The references with one word wrong in ``wrong`` of them, beginning with line ``start``."""
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
def test_the_smallest_p_is_one_in_all_samples_and_what_was_found(kind: str):
    assert paired_test_p(REFERENCES, ["x"] * 40, METRIC, kind, 199) == pytest.approx(1 / 200)
    assert paired_test_p(REFERENCES, ["x"] * 40, METRIC, kind, 49) == pytest.approx(1 / 50)


@pytest.mark.parametrize("kind", ["ar", "bs"])
def test_the_order_of_two_models_does_not_matter_nor_does_the_shell(kind: str, monkeypatch):
    first, second = spoilt(10), spoilt(7, start=20)
    p = paired_test_p(first, second, METRIC, kind, 300)
    assert 0.05 < p < 1
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    assert paired_test_p(second, first, METRIC, kind, 300) == p


def test_randomisation_comes_to_the_share_of_all_shuffles():
    """Nine sentences differ, so 512 ways to swap them, each as likely where the models are alike."""
    first, second = spoilt(6), spoilt(3, start=30)
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
    first, second = spoilt(12), spoilt(6, start=20)
    assert paired_test_p(first, second, METRIC, "ar", 500) != paired_test_p(first, second, METRIC, "bs", 500)


def test_the_largest_p_of_the_seeds_counts():
    clear, close = (spoilt(0), spoilt(20)), (spoilt(9), spoilt(12, start=15))
    single = [paired_test_p(*pair, METRIC, "ar", 200) for pair in (clear, close)]
    assert single[0] < 0.05 < single[1]
    for pairs in ((clear, close), (close, clear)):
        assert all_seeds_p([tuple(runs(*pair)) for pair in pairs], METRIC, "ar", 200) == single[1]
    assert all_seeds_p([tuple(runs(*clear))], METRIC, "ar", 200) == single[0]


def test_seeds_that_do_not_agree_prove_nothing():
    good, bad = runs(spoilt(0), spoilt(20))
    assert all_seeds_p([(good, bad), (bad, good)], METRIC, "ar", 100) == 1
    assert all_seeds_p([(good, bad), (bad, bad)], METRIC, "ar", 100) == 1
    assert all_seeds_p([(bad, good), (bad, good)], METRIC, "ar", 100) < 0.05


@pytest.mark.parametrize("kind", ["ar", "bs"])
def test_a_model_is_not_better_than_itself(kind: str):
    """To sacrebleu it is: no shuffle goes past a difference of 0."""
    one, again = runs(spoilt(5), spoilt(5))
    assert paired_test_p(one.lines, again.lines, METRIC, kind, 200) < 0.05
    assert all_seeds_p([(one, again)], METRIC, kind, 200) == 1


@pytest.mark.parametrize(("differing", "least"), [(1, 1), (2, 1 / 2), (4, 1 / 8), (7, 1 / 64)])
def test_few_sentences_that_differ_cannot_prove_much(differing: int, least: float):
    """All in favour of one model, as a sign test has it: 2 of 2^d."""
    pair = tuple(runs(spoilt(0), spoilt(differing)))
    assert paired_test_p(pair[0].lines, pair[1].lines, METRIC, "ar", 999) < least
    assert all_seeds_p([pair], METRIC, "ar", 999) == least


def test_holm_matches_hand_computation():
    """.005 x 4, .01 x 3, .03 x 2, then .04, which may not be less than the one before."""
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.7, 0.6]) == pytest.approx([1, 1])
    assert holm_correction([0.03]) == [0.03]
    assert holm_correction([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float], rng):
    found = holm_correction(p_values)
    for p, corrected in zip(p_values, found, strict=True):
        assert p <= corrected <= min(1, len(p_values) * p)
    order = rng.sample(range(len(p_values)), len(p_values))
    assert holm_correction([p_values[i] for i in order]) == [found[i] for i in order]
    by_size = sorted(zip(p_values, found, strict=True))
    assert [corrected for _, corrected in by_size] == sorted(found)
