"""BLEU from the counts of sentences against sacrebleu's own, of whole texts and of their resamples."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.significance.bleu_statistics import bleu, bootstrap_draws, sentence_counts
from tests.kits.paths import SHARED

WMT17 = SHARED / "scored-wmt17-en-de"
needs_wmt17 = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")

SENTENCE = st.lists(st.sampled_from(["a", "b", "c", "d", ",", "."]), max_size=9).map(" ".join)
TEXTS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6)
"""Pairs of hypothesis and reference from a few words, so that n-grams of any order match or do not."""


def sacrebleu(hypotheses: list[str], references: list[str]) -> float:
    return BLEU().corpus_score(hypotheses, [references]).score


def test_counts_of_a_sentence_stand_where_they_belong():
    """The cat sat on mat, of the cat sat on the mat: 5 of 5, 3 of 4, 2 of 3, 1 of 2; 5 words for 6."""
    counts = sentence_counts(["the cat sat on mat"], ["the cat sat on the mat"])
    assert counts.tolist() == [[5, 3, 2, 1, 5, 4, 3, 2, 5, 6]]


@pytest.mark.parametrize(
    "pairs",
    [
        [("", "a b c d e")],
        [("", ""), ("a b c d e", "a b c d e")],
        [("a b c d e", "")],
        [("x y z u v", "a b c d e")],
        [("a b c x d e", "a b c d e")],  # no 4-gram: half a match
        [("a b x c d", "a b y c d")],  # no 3-gram either: half a match and a quarter
        [("a x b y c", "a b c d e")],  # words only
        [("a b c", "a b c")],  # too short for a 4-gram to exist
        [("a b c d e", "a b c d e")] * 3,
        [("a b c d e f g h", "a b c d")],
        [("Hello, world. It's 3.5%!", "Hello , world . It 's 3.5 % !")],  # one to 13a, but for its apostrophe
    ],
)
def test_odd_texts_score_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    found = bleu(sentence_counts(hypotheses, references).sum(axis=0))
    assert float(found) == pytest.approx(min(sacrebleu(hypotheses, references), 100), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_text_scores_as_in_sacrebleu(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    found = bleu(sentence_counts(hypotheses, references).sum(axis=0))
    assert float(found) == pytest.approx(min(sacrebleu(hypotheses, references), 100), abs=1e-9)


def test_many_texts_are_scored_at_once_each_as_if_alone():
    sums = np.random.default_rng(3).integers(0, 5, size=(4, 7, 10))
    found = bleu(sums)
    assert found.shape == (4, 7)
    assert found[2, 5] == bleu(sums[2, 5])
    assert len(np.unique(found)) > 4


@settings(max_examples=30, deadline=None)
@given(TEXTS)
def test_a_resample_scores_as_the_lines_it_drew(pairs: list[tuple[str, str]]):
    hypotheses, references = (list(lines) for lines in zip(*pairs, strict=True))
    drawn = bootstrap_draws(len(pairs), 3)
    found = bleu(drawn @ sentence_counts(hypotheses, references))
    for times, score in zip(drawn.astype(int), found, strict=True):
        lines = [pair for pair, count in zip(pairs, times, strict=True) for _ in range(count)]
        again = sacrebleu([line for line, _ in lines], [reference for _, reference in lines])
        assert score == pytest.approx(min(again, 100), abs=1e-9)


def test_a_resample_draws_as_many_sentences_as_there_are_and_each_as_likely():
    drawn = bootstrap_draws(40, 2000)
    assert drawn.shape == (2000, 40)
    assert (drawn.sum(axis=1) == 40).all()
    # Drawn 2000 times each but for chance: a binomial of mean 2000 and deviation 44.
    assert np.abs(drawn.sum(axis=0) - 2000).max() < 5 * 44
    assert drawn.var() == pytest.approx(1 - 1 / 40, abs=0.02)
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(
        bootstrap_draws(40, 2000), drawn
    )  # or models would be set against other sentences


def test_hypotheses_that_do_not_fit_the_references_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        sentence_counts(["a", "b"], ["a"])


@needs_wmt17
@pytest.mark.parametrize("system", ["LIUM-NMT.4900", "online-F.0"])
def test_published_outputs_score_as_in_sacrebleu(system: str):
    hypotheses, references = (
        gzip.decompress((WMT17 / name).read_bytes()).decode().removesuffix("\n").split("\n")
        for name in (f"sys/{system}.de.gz", "ref.de.gz")
    )
    found = bleu(sentence_counts(hypotheses, references).sum(axis=0))
    assert float(found) == pytest.approx(sacrebleu(hypotheses, references), abs=1e-9)
