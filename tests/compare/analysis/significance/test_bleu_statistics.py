"""BLEU from sentence statistics compared with sacrebleu, for whole texts and resamples."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.intervals import bootstrap_draws
from compare.analysis.statistics import bleu, sentence_counts
from tests.kits.paths import SHARED

WMT17 = SHARED / "scored-wmt17-en-de"
needs_wmt17 = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")

SENTENCE = st.lists(st.sampled_from(["a", "b", "c", "d", ",", "."]), max_size=9).map(" ".join)
TEXTS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6)
"""Pairs of hypothesis and reference over few words, so that n-grams of all orders match now and then."""


def sacrebleu(hypotheses: list[str], references: list[str]) -> float:
    return BLEU().corpus_score(hypotheses, [references]).score


def test_sentence_counts_by_hand():
    """Matches 5 of 5, 3 of 4, 2 of 3 and 1 of 2; lengths 5 and 6."""
    counts = sentence_counts(["the cat sat on mat"], ["the cat sat on the mat"])
    assert counts.tolist() == [[5, 3, 2, 1, 5, 4, 3, 2, 5, 6]]


@pytest.mark.parametrize(
    "pairs",
    [
        [("", "a b c d e")],
        [("", ""), ("a b c d e", "a b c d e")],
        [("a b c d e", "")],
        [("x y z u v", "a b c d e")],
        [("a b c x d e", "a b c d e")],  # no 4-gram match, smoothed to 1/2
        [("a b x c d", "a b y c d")],  # no 3-gram match either: 1/2 and 1/4
        [("a x b y c", "a b c d e")],  # unigram matches only
        [("a b c", "a b c")],  # too short for a 4-gram to exist
        [("a b c d e", "a b c d e")] * 3,
        [("a b c d e f g h", "a b c d")],
        [("Hello, world. It's 3.5%!", "Hello , world . It 's 3.5 % !")],  # same 13a tokens but for It's
    ],
)
def test_edge_cases_score_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    scores = bleu(sentence_counts(hypotheses, references).sum(axis=0))
    assert float(scores) == pytest.approx(min(sacrebleu(hypotheses, references), 100), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_text_scores_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    scores = bleu(sentence_counts(hypotheses, references).sum(axis=0))
    assert float(scores) == pytest.approx(min(sacrebleu(hypotheses, references), 100), abs=1e-9)


def test_batched_scores_equal_single_scores():
    sums = np.random.default_rng(3).integers(0, 5, size=(4, 7, 10))
    scores = bleu(sums)
    assert scores.shape == (4, 7)
    assert scores[2, 5] == bleu(sums[2, 5])
    assert len(np.unique(scores)) > 4


@settings(max_examples=30, deadline=None)
@given(TEXTS)
def test_a_resample_scores_as_its_lines(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    draws = bootstrap_draws(len(pairs), 3)
    scores = bleu(draws @ sentence_counts(hypotheses, references))
    for times, score in zip(draws.astype(int), scores, strict=True):
        lines = [pair for pair, count in zip(pairs, times, strict=True) for _ in range(count)]
        expected = sacrebleu([line for line, _ in lines], [reference for _, reference in lines])
        assert score == pytest.approx(min(expected, 100), abs=1e-9)


def test_a_resample_has_the_size_of_the_test_set_and_is_uniform():
    draws = bootstrap_draws(40, 2000)
    assert draws.shape == (2000, 40)
    assert (draws.sum(axis=1) == 40).all()
    # How often each sentence is drawn is binomial with mean 2000 and standard deviation 44.
    assert np.abs(draws.sum(axis=0) - 2000).max() < 5 * 44
    assert draws.var() == pytest.approx(1 - 1 / 40, abs=0.02)
    assert not np.array_equal(draws[0], draws[1])
    # All models must be compared on the same resamples.
    np.testing.assert_array_equal(bootstrap_draws(40, 2000), draws)


def test_fewer_references_than_hypotheses_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses, but 1 references"):
        sentence_counts(["a", "b"], ["a"])


@needs_wmt17
@pytest.mark.parametrize("system", ["LIUM-NMT.4900", "online-F.0"])
def test_published_outputs_score_as_in_sacrebleu(system: str):
    hypotheses, references = (
        gzip.decompress((WMT17 / name).read_bytes()).decode().removesuffix("\n").split("\n")
        for name in (f"sys/{system}.de.gz", "ref.de.gz")
    )
    scores = bleu(sentence_counts(hypotheses, references).sum(axis=0))
    assert float(scores) == pytest.approx(sacrebleu(hypotheses, references), abs=1e-9)
