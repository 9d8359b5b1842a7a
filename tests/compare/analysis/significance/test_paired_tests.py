"""Paired tests over all seeds together, and Holm's correction."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from compare.analysis import statistics as paired_tests
from compare.analysis.intervals import COMPARED_METRICS, SampledScore, score_test_set
from compare.analysis.statistics import bootstrap_p, holm_correction, randomisation_p, swap_draws
from compare.scoring.metrics import fixed_seed

REFERENCES = [f"the {noun} sat on the {place} {i}" for i in range(10) for noun in "ab" for place in "cd"]


def with_errors(wrong: int, start: int = 0) -> list[str]:
    """Return the references with one wrong word in ``wrong`` lines from line ``start`` on."""
    lines = list(REFERENCES)
    for index in range(start, start + wrong):
        lines[index] = lines[index].replace("sat", "stood")
    return lines


def scores(lines: list[str], metric: str = "bleu", resamples: int = 500) -> SampledScore:
    scored = score_test_set("test", REFERENCES, {"a": {1: lines}}, resamples=resamples)
    return scored.models["a"][1].scores[metric]


def randomise(*pairs: tuple[list[str], list[str]], metric: str = "bleu", trials: int = 500) -> float:
    """Return the p-value of pairs of translations, one pair per seed."""
    first, second = ([scores(pair[side], metric).counts for pair in pairs] for side in (0, 1))
    return randomisation_p(first, second, COMPARED_METRICS[metric].score, swap_draws(40, trials))


def bootstrap(*pairs: tuple[list[str], list[str]], metric: str = "bleu", resamples: int = 500) -> float:
    sampled = [[scores(lines, metric, resamples) for lines in pair] for pair in pairs]
    difference = float(np.mean([first.score - second.score for first, second in sampled]))
    return bootstrap_p(
        difference, np.stack([first.resampled - second.resampled for first, second in sampled])
    )


def sacrebleu_p(first: list[str], second: list[str], kind: str, samples: int) -> dict[str, float]:
    """Return the p-values of sacrebleu's paired test by metric."""
    metrics = {"bleu": BLEU(references=[REFERENCES]), "chrf": CHRF(references=[REFERENCES])}
    with fixed_seed():
        test = PairedTest([("a", first), ("b", second)], metrics, None, test_type=kind, n_samples=samples)
    _, columns = test()
    return {"bleu": columns["BLEU"][1].p_value, "chrf": columns["chrF2"][1].p_value}


def noisy(share: float, seed: int) -> list[str]:
    """Return the references with a share of their words replaced by letters of random length."""
    rng = np.random.default_rng(seed)
    return [
        " ".join("x" * rng.integers(1, 9) if rng.random() < share else word for word in line.split())
        for line in REFERENCES
    ]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@pytest.mark.parametrize(("share", "other"), [(0.1, 0.4), (0.3, 0.35), (0.2, 0.3)])
def test_with_one_seed_p_is_that_of_sacrebleu(share: float, other: float, metric: str):
    """The random numbers are the same too."""
    pair = noisy(share, 1), noisy(other, 2)
    assert randomise(pair, metric=metric, trials=1000) == sacrebleu_p(*pair, "ar", 1000)[metric]
    assert bootstrap(pair, metric=metric) == pytest.approx(sacrebleu_p(*pair, "bs", 500)[metric], abs=0.003)


def test_trials_that_equal_the_observed_difference_count():
    """With sacrebleu they do not, so that a difference in a single sentence has the smallest p there is."""
    pair = with_errors(0), with_errors(1)
    assert sacrebleu_p(*pair, "ar", 200)["bleu"] == pytest.approx(1 / 201)
    assert randomise(pair, trials=200) == 1


def test_randomisation_approximates_the_exact_test_over_seeds():
    """Two seeds; eleven sentences differ with either, so there are 2,048 shuffles of all seeds at once."""
    pairs = [(with_errors(6), with_errors(3, start=30)), (with_errors(8), with_errors(2, start=31))]
    counts = np.array([[scores(lines).counts for lines in pair] for pair in pairs])  # (k, 2, N, 10)
    score = COMPARED_METRICS["bleu"].score
    differing = np.flatnonzero((counts[:, 0] != counts[:, 1]).any(axis=(0, 2)))
    assert len(differing) == 11
    statistics = []
    for swapped in itertools.product([False, True], repeat=len(differing)):
        shuffled = counts.copy()
        shuffled[:, :, differing[list(swapped)]] = counts[:, ::-1, differing[list(swapped)]]
        both = score(shuffled.sum(axis=2))  # (k, 2)
        statistics.append(abs((both[:, 0] - both[:, 1]).mean()))
    share = float(np.mean(np.array(statistics) >= statistics[0] - 1e-9))
    assert 0.02 < share < 0.9
    assert randomise(*pairs, trials=4000) == pytest.approx(share, abs=0.025)


def test_the_smallest_p_is_one_in_trials_plus_one():
    pair = REFERENCES, ["x"] * 40
    for samples in (199, 49):
        assert randomise(pair, trials=samples) == pytest.approx(1 / (samples + 1))
        assert bootstrap(pair, resamples=samples) == pytest.approx(1 / (samples + 1))


def test_p_does_not_depend_on_the_order_of_models_the_environment_or_chunks(monkeypatch):
    pair = with_errors(10), with_errors(7, start=20)
    p = randomise(pair), bootstrap(pair)
    assert min(p) > 0.05
    assert max(p) < 1
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    monkeypatch.setattr(paired_tests, "CHUNK", 100)
    assert (randomise(pair[::-1]), bootstrap(pair[::-1])) == p


def test_each_further_seed_with_the_same_difference_leaves_p_as_it_is():
    """The same sentences again: no more evidence, and no less (the largest p of the seeds would rise)."""
    pair = with_errors(2), with_errors(12, start=20)
    assert randomise(pair, pair, pair) == randomise(pair)
    assert bootstrap(pair, pair) == pytest.approx(bootstrap(pair))


def test_seeds_that_fail_on_different_sentences_add_evidence():
    """One error more or less in each of four sentences, alone p = 0.12; other sentences for each seed."""
    seeds = [(with_errors(0), with_errors(4, start=10 * seed)) for seed in range(3)]
    assert randomise(seeds[0], trials=2000) == pytest.approx(2 / 2**4, abs=0.03)
    assert randomise(*seeds, trials=2000) < 0.01


def test_seeds_that_disagree_cancel_out():
    good, bad = with_errors(0), with_errors(20)
    assert randomise((good, bad), (bad, good)) == 1
    assert randomise((good, bad), (good, bad), (bad, good)) < 0.05


def test_equal_outputs_do_not_differ_significantly():
    """sacrebleu alone reports a small p, because no shuffle exceeds a difference of 0."""
    pair = with_errors(5), with_errors(5)
    assert sacrebleu_p(*pair, "ar", 200)["bleu"] < 0.05
    assert randomise(pair) == bootstrap(pair) == 1


@pytest.mark.parametrize(("differing", "least"), [(1, 1), (2, 1 / 2), (4, 1 / 8), (7, 1 / 64)])
def test_the_smallest_p_depends_on_the_number_of_differing_sentences(differing: int, least: float):
    """All differences favour one model: p = 2 / 2^d, as in a sign test."""
    assert randomise((with_errors(0), with_errors(differing)), trials=4000) == pytest.approx(least, abs=0.02)


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
