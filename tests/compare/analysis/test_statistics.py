"""BLEU and chrF from sentence statistics, compared with sacrebleu; the correction of many tests."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from compare.analysis.statistics import (
    bleu,
    bootstrap_draws,
    chrf,
    compare_files,
    holm_correction,
    sentence_counts,
)

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
    exact = sum(found >= everything[0] - 1e-9 for found in everything) / len(everything)
    assert exact < 0.05
    assert (same.difference, same.p) == (0, 1)
    assert (first.first, first.second) == (str(files[0]), str(files[2]))
    assert first.difference == pytest.approx(differ([False] * 6))
    assert first.p == second.p == pytest.approx(3 * exact, rel=0.15)  # Holm, of three
