"""Quality by length, rare words, faults."""

from itertools import pairwise
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compare.analysis.quality import (
    by_length,
    count_matches,
    extract_words,
    faults,
    make_buckets,
    rare_words,
    repetition_penalty,
)
from data.corpus import Pairs
from tests.kits.experiments import make_finished, pairs

NAMES = ("a", "bb", "ccc", "dddd", "eeeee")


def sentence(length: int, number: int = 0) -> str:
    """Return a line of ``length`` words; ``number`` makes lines of equal length differ."""
    return " ".join(NAMES[(i + number) % len(NAMES)] for i in range(length)) + "."


def line_pairs(*lengths: int) -> Pairs:
    lines = [sentence(length, number) for number, length in enumerate(lengths)]
    return pairs(*((line, line.upper()) for line in lines))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("At 10:30, you left.", ["At", "10:30", "you", "left"]),
        ("1,000 x 3.5 = 3rd; 1/2!", ["1,000", "x", "3.5", "3rd", "1/2"]),
        ("Don't re-use A320s – “ever”…", ["Don't", "re-use", "A320s", "ever"]),
        ("?! ...", []),
        ("她看到3个人。", ["她", "看", "到", "3", "个", "人"]),
    ],
)
def test_words_exclude_punctuation_and_keep_numbers_whole(text: str, expected: list[str]):
    assert extract_words(text) == expected


def test_buckets_by_hand():
    """3 sentences of each length from 1 to 12.

    For buckets of 6, steps of 1 and of 2 cut after every second length; steps of 5 cut after 5 (15 inside, 21
    left) and after 10 (15 inside, 6 left). For buckets of 7, steps of 2 cut after every fourth (12 inside).
    """
    lengths = [length for length in range(1, 13) for _ in range(3)]
    for most, least, expected in (
        (6, 6, "1–2 3–4 5–6 7–8 9–10 11–12"),
        (5, 6, "1–5 6–10 11–12"),
        (3, 7, "1–4 5–8 9–12"),
    ):
        assert " ".join(map(str, make_buckets(lengths, most=most, least=least))) == expected


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=200), st.integers(1, 12), st.integers(1, 60))
@example(lengths=[0, 0, 1], most=1, least=1)  # 0 is a multiple of every step
def test_buckets_partition_the_lengths_and_have_a_minimum_size(lengths: list[int], most: int, least: int):
    buckets = make_buckets(lengths, most=most, least=least)
    assert 1 <= len(buckets) <= most
    assert (buckets[0].low, buckets[-1].high) == (min(lengths), max(lengths))
    assert all(one.high + 1 == two.low for one, two in pairwise(buckets))
    sizes = [sum(bucket.low <= length <= bucket.high for length in lengths) for bucket in buckets]
    assert sum(sizes) == len(lengths)
    assert min(sizes) >= least or len(buckets) == 1


def test_each_bucket_is_scored_as_a_corpus_over_all_test_sets(tmp_path: Path):
    short, long = line_pairs(*range(3, 9), *[4] * 100), line_pairs(*[9] * 60, *[11] * 60)
    outputs = {
        test: [line.lower() if number % 3 else line for number, line in enumerate(lines.tgt)]
        for test, lines in (("test", short), ("test_long", long))
    }
    perfect = {"test": short.tgt, "test_long": long.tgt}
    tests = {"test": short, "test_long": long}
    runs = {("a", 1): outputs, ("b", 2): perfect}
    rows = by_length(make_finished(tmp_path, train=short, tests=tests, outputs=runs)).rows
    src, tgt = [*short.src, *long.src], [*short.tgt, *long.tgt]
    hypotheses = [*outputs["test"], *outputs["test_long"]]
    assert [row["source_words"] for row in rows] == ["3–4", "5–9", "10–11"] * 2
    for row in rows[:3]:
        low, high = map(int, row["source_words"].split("–"))
        members = [i for i, line in enumerate(src) if low <= len(line.split()) <= high]
        lines, references = [hypotheses[i] for i in members], [tgt[i] for i in members]
        expected = sacrebleu.corpus_bleu(lines, [references])
        assert (row["label"], row["seed"], row["sentences"]) == ("a", 1, len(members))
        assert row["bleu"] == pytest.approx(expected.score, abs=1e-9)
        assert row["length_ratio"] == expected.sys_len / expected.ref_len
    assert [(row["bleu"], row["length_ratio"]) for row in rows[3:]] == [(100, 1)] * 3


def test_matches_are_clipped_and_counted_per_line():
    # Line 1: 2 of 3 "a" match, 1 of 1 "b". Line 2: "c" is in the reference of line 1 only.
    matches = count_matches([["a", "a", "a", "b"], ["c"]], [["b", "a", "a", "c"], ["a"]], str)
    assert [counts.total() for counts in matches] == [3, 5, 5]
    assert matches[0] == {"a": 2, "b": 1}


def test_words_are_grouped_by_training_count(tmp_path: Path):
    edges = (0, 1, 4, 5, 19, 20, 99, 100, 999, 1000)
    train = pairs(*((f"x{n}", f"w{n}") for n in edges for _ in range(n)))
    reference = " ".join(f"w{n}" for n in edges)
    outputs = {("a", 1): {"test": ["w1 w5 w5 w99 W100, w999. zzz", ""]}}
    tests = {"test": pairs(("x", reference), ("x", "w4"))}
    rows = rare_words(make_finished(tmp_path, train=train, tests=tests, outputs=outputs)).rows
    counts = [
        (row["training_count"], row["ref_words"], row["hyp_words"], row["recall_percent"]) for row in rows
    ]
    assert counts == [
        ("0", 1, 2, 0),  # in the translation: zzz, and W100, which training has in lower case only
        ("1–4", 3, 1, pytest.approx(100 / 3)),
        ("5–19", 2, 2, 50),
        ("20–99", 2, 1, 50),
        ("100–999", 2, 1, 50),
        ("1000+", 1, 0, 0),
    ]
    assert [row["precision_percent"] for row in rows] == [0, 100, 50, 100, 100, None]


REPETITIONS = {
    ("a b x a b", "a b"): 1,  # "a b" twice, once in the reference
    ("a b x a b", "a b a b"): 0,
    ("a b a b a b", "a b"): 2 + 2,  # "a b" 3 times instead of 1, "b a" 2 instead of 0
    ("a a", "a"): 2,  # once, but a doubled word
    ("a a a", "a"): 2 + 2 * 2,  # "a a" twice: a repeated bigram and a doubled word
    ("", "a"): 0,
}


def test_repetition_by_hand():
    for (hypothesis, reference), penalty in REPETITIONS.items():
        assert repetition_penalty(hypothesis.split(), reference.split()) == penalty


def test_faults_of_each_test_set_by_hand(tmp_path: Path):
    one = pairs(("a b c d", "x y z v"), ("a", "x y z v"))
    two = pairs(("a b", "x y"), ("c d", "z, v"))
    finished = make_finished(
        tmp_path,
        train=one,
        tests={"test_a": one, "test_b": two},
        outputs={("m", 3): {"test_a": ["x x y", "x y z v"], "test_b": ["", "  "]}},
        results={("m", 3): {"length_ratio": 0.75, "tests": {"test_b": {"length_ratio": 0.5}}}},
    )
    names = ("label", "seed", "test", "length_ratio", "rep_score", "repeating_percent")
    names += ("empty_percent",)
    assert [[row[name] for name in names] for row in faults(finished).rows] == [
        ["m", 3, "test_a", 0.75, 100 * 2 / 8, 50, 0],
        ["m", 3, "test_b", 0.5, 0, 0, 100],
    ]
