"""Repetitive, cut off and empty translations."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.analysis.finished_experiment import load_finished
from compare.analysis.quality import behaviour, repetition_penalty, token_counts
from compare.results.trained_model import load_model
from data.corpus import embedded_corpus
from data.vocabulary import UNK, build_vocabulary, load_pair
from tests.kits.finished_experiments import make_finished, pairs

WORDS = st.lists(st.sampled_from("abc"), max_size=10)
TEXTS = ["the dog sees, the cat.", "a (small) tree!", "who is that?"]


@pytest.mark.parametrize(
    ("hypothesis", "reference", "penalty"),
    [
        ("a b c", "x y z", 0),
        ("a b x a b", "a b", 1),  # "a b" twice, once in the reference
        ("a b x a b", "c", 2),
        ("a b x a b", "a b a b", 0),
        ("a b a b a b", "a b", 2 + 2),  # "a b" 3 times instead of 1, "b a" 2 instead of 0
        ("a a", "a", 2),  # once, but a doubled word
        ("a a", "a a", 0),
        ("a a a", "a", 2 + 2 * 2),  # "a a" twice: a repeated bigram and a doubled word
        ("", "a", 0),
    ],
)
def test_repetition_by_hand(hypothesis: str, reference: str, penalty: int):
    assert repetition_penalty(hypothesis.split(), reference.split()) == penalty


@settings(deadline=None)
@given(WORDS, WORDS)
def test_repetition_is_the_sum_of_its_two_parts(hypothesis: list[str], reference: list[str]):
    """Compare with the definition of the paper, term by term."""
    bigrams = list(pairwise(hypothesis))
    expected = Counter(pairwise(reference))
    terms = [
        (bigram, bigrams.count(bigram), max(0, bigrams.count(bigram) - expected[bigram]))
        for bigram in set(bigrams)
    ]
    repeated = sum(extra for _, times, extra in terms if times >= 2)
    assert repetition_penalty(hypothesis, reference) == repeated + 2 * sum(
        extra for bigram, _, extra in terms if len(set(bigram)) == 1
    )
    assert repetition_penalty(hypothesis, hypothesis) == 0


@settings(deadline=None)
@given(st.lists(st.integers(UNK, 12), min_size=1, max_size=12))
def test_characters_are_counted_exactly_including_the_unknown_token(ids: list[int]):
    vocabulary = build_vocabulary("characters", TEXTS, size=40)
    ids = [index for index in ids if index == UNK or index > 3]
    assert token_counts([vocabulary.decode(ids)], vocabulary) == [len(ids)]


def test_an_unknown_word_is_one_token():
    vocabulary = build_vocabulary("words", TEXTS, size=40)
    ids = vocabulary.encode("the zebra, the zebra zebra.")
    assert ids.count(UNK) == 3
    assert "<unk>" in vocabulary.decode(ids)
    assert token_counts([vocabulary.decode(ids), ""], vocabulary) == [len(ids), 0] == [7, 0]


def test_a_translation_of_at_least_the_limit_is_cut_off(tmp_path: Path):
    """Sources of 5 and 3 characters and a ratio of 1.5: search stops after 17 and 14 tokens."""
    lines = pairs(*[("abcde", "abcd")] * 3, *[("abc", "abcd")] * 2)
    outputs = ["a" * 16, "a" * 17, "a" * 18, "a" * 13, "a" * 14]
    finished = make_finished(
        tmp_path,
        train=lines,
        tests={"test": lines},
        outputs={("a", 1): {"test": outputs}},
        kind="characters",
        max_ratio=1.5,
    )
    (row,) = behaviour(finished).rows
    assert row["cut_off_percent"] == 60


def test_the_limit_is_computed_from_tokens_of_the_source_vocabulary(tmp_path: Path):
    corpus = embedded_corpus(train=300)
    line = corpus.splits["train"].src[0]
    test = pairs((line, "x"))
    finished = make_finished(
        tmp_path,
        train=corpus.splits["train"],
        tests={"test": test},
        outputs={("a", 1): {"test": [""]}},
        kind="bpe",
        size=400,
    )
    src, tgt = load_pair(finished.runs[0].folder)
    limit = 2 * len(src.encode(line)) + 10
    assert limit + 5 < 2 * len(tgt.encode(line)) + 10  # the target vocabulary needs more pieces
    word = corpus.splits["train"].tgt[0].split()[0]
    texts = [" ".join([word] * times) for times in range(1, 200)]
    lengths = token_counts(texts, tgt)
    text = texts[next(i for i, length in enumerate(lengths) if length >= limit)]
    assert token_counts([text], tgt)[0] < 2 * len(tgt.encode(line)) + 10
    run = replace(finished.runs[0], outputs={"test": (text,)})
    (row,) = behaviour(replace(finished, runs=(run,))).rows
    assert row["cut_off_percent"] == 100


def test_faults_of_each_test_set_by_hand(tmp_path: Path):
    one = pairs(("a b c d", "x y z v"), ("a", "x y z v"))
    two = pairs(("a b", "x y"), ("c d", "z, v"))
    results = {("m", 3): {"length_ratio": 0.75, "tests": {"test_b": {"length_ratio": 0.5}}}}
    finished = make_finished(
        tmp_path,
        train=one,
        tests={"test_a": one, "test_b": two},
        outputs={("m", 3): {"test_a": ["x x y", "x y z v"], "test_b": ["", "  "]}},
        results=results,
    )
    first, second = behaviour(finished).rows
    assert first == {
        "label": "m",
        "seed": 3,
        "test": "test_a",
        "length_ratio": 0.75,
        "rep_score": 100 * 2 / 8,
        "repeating_percent": 50,
        "cut_off_percent": 0,
        "empty_percent": 0,
    }
    assert (second["test"], second["length_ratio"]) == ("test_b", 0.5)
    assert (second["rep_score"], second["repeating_percent"], second["empty_percent"]) == (0, 0, 100)


def test_a_trained_run_has_the_rates_of_its_translations(finished: Path):
    """With a word vocabulary, the text has as many tokens as the search output."""
    experiment = load_finished(finished)
    rows = behaviour(experiment).rows
    assert [row["label"] for row in rows] == ["luong", "transformer"]
    model = load_model(experiment.runs[0].folder)
    sources = experiment.corpus.splits["test"].src
    output_lengths = [len(hypothesis.tokens) for hypothesis in model.search(sources)]
    assert token_counts(experiment.runs[0].outputs["test"], model.vocabularies.tgt) == output_lengths
    limits = [2 * len(ids) + 10 for ids in model.vocabularies.src.encode_all(sources)]
    cut_off = [length >= limit for length, limit in zip(output_lengths, limits, strict=True)]
    assert rows[0]["cut_off_percent"] == pytest.approx(100 * sum(cut_off) / len(cut_off))
    assert rows[0]["empty_percent"] == pytest.approx(100 * output_lengths.count(0) / len(output_lengths))
