"""BLEU and chrF from sentence statistics, and paired tests, compared with sacrebleu and published figures."""

import csv
import gzip
import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from compare.analysis import statistics
from compare.analysis.intervals import SampledScore, bootstrap_draws, score_test_set
from compare.analysis.statistics import (
    COMPARED_METRICS,
    IntArray,
    bleu,
    bootstrap_p,
    chrf,
    holm_correction,
    randomisation_p,
    sentence_counts,
    swap_draws,
)
from compare.scoring.metrics import fixed_seed
from tests.kits.paths import SHARED

SENTENCE = st.lists(st.sampled_from(["a", "b", "é", "d", ",", "."]), max_size=9).map(" ".join)
TEXTS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6)
"""Pairs of hypothesis and reference over few words, so that n-grams of all orders match now and then."""


def sacrebleu(hypotheses: list[str], references: list[str]) -> float:
    return min(BLEU().corpus_score(hypotheses, [references]).score, 100)


def test_statistics_by_hand():
    """Matches 5/5, 3/4, 2/3 and 1/2, lengths 5 and 6; "abc" and "abd" share 2 characters and 1 bigram."""
    counts = sentence_counts("bleu", ["the cat sat on mat"], ["the cat sat on the mat"])
    assert counts.tolist() == [[5, 6, 5, 3, 2, 1, 5, 4, 3, 2]]
    ngrams = sentence_counts("chrf", ["a bc"], ["ab d"])
    assert ngrams.tolist() == [[3, 3, 2, 2, 2, 1, 1, 1, 0, *[0] * 9]]
    assert chrf(ngrams[0]) == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        sentence_counts("bleu", ["a", "b"], ["a"])


@pytest.mark.parametrize(
    "pairs",
    [
        [("", ""), ("a b c d e", "a b c d e")],
        [("a b c d e", "")],
        [("a b c x d e", "a b c d e")],  # no 4-gram match, smoothed to 1/2
        [("a b x c d", "a b y c d")],  # no 3-gram match either: 1/2 and 1/4
        [("a x b y c", "a b c d e")],  # unigram matches only
        [("a b c", "a b c")],  # too short for a 4-gram to exist
        [("Hello, world. It's 3.5%!", "Hello , world . It 's 3.5 % !")],  # same 13a tokens but for It's
    ],
)
def test_edge_cases_score_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    scores = bleu(sentence_counts("bleu", hypotheses, references).sum(axis=0))
    assert float(scores) == pytest.approx(sacrebleu(hypotheses, references), abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_any_text_and_any_resample_scores_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    counts, ngrams = (sentence_counts(metric, hypotheses, references) for metric in ("bleu", "chrf"))
    assert float(bleu(counts.sum(axis=0))) == pytest.approx(sacrebleu(hypotheses, references), abs=1e-9)
    expected = CHRF().corpus_score(hypotheses, [references]).score
    assert float(chrf(ngrams.sum(axis=0))) == pytest.approx(expected, abs=1e-9)
    singles = [CHRF().sentence_score(line, [reference]).score for line, reference in pairs]
    assert chrf(ngrams) == pytest.approx(np.array(singles), abs=1e-9)
    (times,) = bootstrap_draws(len(pairs), 1).astype(int)
    lines = [pair for pair, count in zip(pairs, times, strict=True) for _ in range(count)]
    drawn = sacrebleu([line for line, _ in lines], [reference for _, reference in lines])
    assert float(bleu(times @ counts)) == pytest.approx(drawn, abs=1e-9)
    sums = np.stack([counts.sum(axis=0), times @ counts])  # any number of sums at once
    assert bleu(sums).tolist() == [float(bleu(row)) for row in sums]


def test_a_resample_has_the_size_of_the_test_set_and_is_uniform():
    """How often each sentence is drawn is binomial with mean 2000 and standard deviation 44."""
    draws = bootstrap_draws(40, 2000)
    assert (draws.sum(axis=1) == 40).all()
    assert np.abs(draws.sum(axis=0) - 2000).max() < 5 * 44


# Paired tests over all seeds together.

REFERENCES = [f"the {noun} sat on the {place} {i}" for i in range(10) for noun in "ab" for place in "cd"]


def with_errors(wrong: int, start: int = 0) -> list[str]:
    """Return the references with one wrong word in ``wrong`` lines from line ``start`` on."""
    lines = list(REFERENCES)
    for index in range(start, start + wrong):
        lines[index] = lines[index].replace("sat", "stood")
    return lines


def noisy(share: float, seed: int) -> list[str]:
    """Return the references with a share of their words replaced by letters of random length."""
    rng = np.random.default_rng(seed)
    return [
        " ".join("x" * rng.integers(1, 9) if rng.random() < share else word for word in line.split())
        for line in REFERENCES
    ]


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
    return bootstrap_p(difference, np.stack([one.resampled - other.resampled for one, other in sampled]))


def sacrebleu_p(first: list[str], second: list[str], kind: str, samples: int) -> dict[str, float]:
    """Return the p-values of sacrebleu's paired test by metric."""
    metrics = {"bleu": BLEU(references=[REFERENCES]), "chrf": CHRF(references=[REFERENCES])}
    with fixed_seed():
        test = PairedTest([("a", first), ("b", second)], metrics, None, test_type=kind, n_samples=samples)
    _, columns = test()
    return {"bleu": columns["BLEU"][1].p_value, "chrf": columns["chrF2"][1].p_value}


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@pytest.mark.parametrize(("share", "other"), [(0.1, 0.4), (0.3, 0.35)])
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
    same = with_errors(5), with_errors(5)
    assert sacrebleu_p(*same, "ar", 200)["bleu"] < 0.05
    assert randomise(same) == bootstrap(same) == 1
    most = REFERENCES, ["x"] * 40
    assert randomise(most, trials=199) == bootstrap(most, resamples=199) == pytest.approx(1 / 200)


def test_randomisation_approximates_the_exact_test_over_seeds():
    """Two seeds; eleven sentences differ with either, so there are 2,048 shuffles of all seeds at once."""
    pairs = [(with_errors(6), with_errors(3, start=30)), (with_errors(8), with_errors(2, start=31))]
    counts = np.array([[scores(lines).counts for lines in pair] for pair in pairs])  # (k, 2, N, 10)
    differing = np.flatnonzero((counts[:, 0] != counts[:, 1]).any(axis=(0, 2)))
    assert len(differing) == 11
    found = []
    for swapped in itertools.product([False, True], repeat=len(differing)):
        shuffled = counts.copy()
        shuffled[:, :, differing[list(swapped)]] = counts[:, ::-1, differing[list(swapped)]]
        both = bleu(shuffled.sum(axis=2))  # (k, 2)
        found.append(abs((both[:, 0] - both[:, 1]).mean()))
    share = float(np.mean(np.array(found) >= found[0] - 1e-9))
    assert 0.02 < share < 0.9
    assert randomise(*pairs, trials=4000) == pytest.approx(share, abs=0.025)


def test_p_does_not_depend_on_the_order_of_models_the_environment_or_chunks(monkeypatch):
    pair = with_errors(10), with_errors(7, start=20)
    p = randomise(pair), bootstrap(pair)
    assert 0.05 < min(p) <= max(p) < 1
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    monkeypatch.setattr(statistics, "CHUNK", 100)
    assert (randomise(pair[::-1]), bootstrap(pair[::-1])) == p


def test_seeds_add_evidence_only_on_other_sentences():
    """The same sentences again are no more evidence, and no less; seeds that disagree cancel out."""
    pair = with_errors(2), with_errors(12, start=20)
    assert randomise(pair, pair, pair) == randomise(pair)
    assert bootstrap(pair, pair) == pytest.approx(bootstrap(pair))
    seeds = [(with_errors(0), with_errors(4, start=10 * seed)) for seed in range(3)]
    assert randomise(seeds[0], trials=2000) == pytest.approx(2 / 2**4, abs=0.03)  # as in a sign test
    assert randomise(*seeds, trials=2000) < 0.01
    good, bad = with_errors(0), with_errors(20)
    assert randomise((good, bad), (bad, good)) == 1
    assert randomise((good, bad), (good, bad), (bad, good)) < 0.05


def test_holm_matches_hand_computation():
    """Factors 4, 3, 2, 1 in rising order; .04 is raised to the corrected value before it."""
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.7, 0.6]) == pytest.approx([1, 1])
    assert holm_correction([]) == []


# Outputs of WMT17 with their published p-values of Moses and MultEval.

WMT17 = SHARED / "scored-wmt17-en-de"
needs_wmt17 = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")
BASELINE, CLOSE, FAR = "LIUM-NMT.4900", "online-B.0", ("online-A.0", "online-F.0", "online-G.0")


@cache
def read(name: str) -> tuple[str, ...]:
    return tuple(gzip.decompress((WMT17 / name).read_bytes()).decode().removesuffix("\n").split("\n"))


@cache
def counts_of(system: str) -> IntArray:
    """Count sacrebleu's statistics without tokenisation, as in the published tests, in the order of ours."""
    metric = BLEU(tokenize="none", references=[read("ref.de.gz")])
    return np.array(metric._extract_corpus_statistics(read(f"sys/{system}.de.gz"), None))


def published(column: str, system: str) -> float:
    with (WMT17 / "EXPECTED.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["system"]: row for row in csv.DictReader(file, delimiter="\t")}
    return float(rows[system][column])


@needs_wmt17
@pytest.mark.parametrize("system", [CLOSE, *FAR])
def test_p_is_that_of_moses_and_multeval(system: str):
    """A tenth of the trials suffices where p is the smallest possible."""
    first, second = counts_of(BASELINE), counts_of(system)
    draws = bootstrap_draws(len(first), 2000)
    difference = float(bleu(first.sum(axis=0)) - bleu(second.sum(axis=0)))
    p = bootstrap_p(difference, (bleu(draws @ first) - bleu(draws @ second))[None])
    assert p == pytest.approx(published("moses_bootstrap_p_vs_LIUM", system), abs=0.01)
    swaps = swap_draws(len(first), 10_000 if system == CLOSE else 1000)
    p = randomisation_p([first], [second], bleu, swaps)
    assert p == pytest.approx(published("multeval_AR_p_BLEU", system), abs=0.01)
