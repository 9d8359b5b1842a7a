"""Rare words, copies and numbers, compared with counts by hand."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.analysis.quality import (
    BUCKET_NAMES,
    Matches,
    copied_words,
    copies_and_numbers,
    count_matches,
    count_matches_by_kind,
    find_numbers,
    rare_words,
    spelled_numbers,
)
from data.corpus import embedded_corpus
from data.grammar.phrases import number_words
from tests.kits.finished_experiments import make_finished, pairs

LINES = st.lists(st.lists(st.sampled_from("abcAB1"), max_size=8), min_size=1, max_size=5)


def test_matches_are_clipped_and_counted_per_line():
    # Line 1: 2 of 3 "a" match, 1 of 1 "b". Line 2: "c" is in the reference of line 1 only.
    matches = count_matches([["a", "a", "a", "b"], ["c"]], [["b", "a", "a", "c"], ["a"]])
    assert matches == Matches(both=3, ref=5, hyp=5)
    assert matches.percentages() == {"recall_percent": 60, "precision_percent": 60, "f1_percent": 60}


def test_percentages_by_hand():
    rates = Matches(both=1, ref=4, hyp=2).percentages("number_")
    f1 = 2 * 25 * 50 / (25 + 50)
    assert rates == {
        "number_recall_percent": 25,
        "number_precision_percent": 50,
        "number_f1_percent": pytest.approx(f1),
    }
    assert list(Matches(0, 3, 0).percentages().values()) == [0, None, 0]
    assert list(Matches(0, 0, 3).percentages().values()) == [None, 0, 0]
    assert list(Matches(0, 0, 0).percentages().values()) == [None, None, None]


@settings(deadline=None)
@given(LINES, st.randoms())
def test_kinds_add_up_and_sides_can_be_swapped(lines: list[list[str]], random):
    others = [random.sample([*line, "c", "d"], k=len(line)) for line in lines]
    both, ref, hyp = count_matches(lines, others)
    assert count_matches(others, lines) == Matches(both, hyp, ref)
    # Independent count: remove each reference word from the translation if it is still there.
    remaining = [list(line) for line in lines]
    removed = [
        line.remove(word)
        for line, other in zip(remaining, others, strict=True)
        for word in other
        if word in line
    ]
    assert both == len(removed)
    kinds = count_matches_by_kind(
        ("low", "up"), lambda word: "up" if word.isupper() else "low", lines, others
    )
    assert [sum(column) for column in zip(*kinds.values(), strict=True)] == [both, ref, hyp]


def test_words_are_grouped_by_training_count(tmp_path: Path):
    edges = (0, 1, 4, 5, 19, 20, 99, 100, 999, 1000)
    train = pairs(*((f"x{n}", f"w{n}") for n in edges for _ in range(n)))
    reference = " ".join(f"w{n}" for n in edges)
    outputs = {("a", 1): {"test": ["w1 w5 w5 w99 W100, w999. zzz", ""]}}
    tests = {"test": pairs(("x", reference), ("x", "w4"))}
    rows = rare_words(make_finished(tmp_path, train=train, tests=tests, outputs=outputs), "test").rows
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


def test_every_run_has_every_bucket(tmp_path: Path):
    lines = pairs(("a b", "x y"))
    outputs = {("one", seed): {"test": ["x"]} for seed in (1, 2)}
    table = rare_words(make_finished(tmp_path, train=lines, tests={"test": lines}, outputs=outputs), "test")
    assert [(row["seed"], row["training_count"]) for row in table.rows] == [
        (seed, name) for seed in (1, 2) for name in BUCKET_NAMES
    ]


def test_names_have_a_capital_and_no_lower_case_form_in_training():
    common = {"the", "in", "hand"}
    source = ["In", "Berlin", "Anna", "met", "Anna", "with", "iPhone", "and", "3rd", "Hand", "Munich"]
    reference = ["In", "Berlin", "Anna", "Anna", "Anna", "met", "iPhone", "3rd", "Hand", "München"]
    assert Counter(copied_words(source, reference, common)) == Counter(
        {"Berlin": 1, "Anna": 2, "iPhone": 1, "3rd": 1}
    )


def test_numbers_have_digits_or_are_spelled_out_in_english_or_german():
    english, german = spelled_numbers("en"), spelled_numbers("de")
    line = ["Twenty-one", "or", "thirty", "three", "12", "one", "third", "A320", "two-story", "Zwei"]
    assert find_numbers(line, english) == ["twenty-one", "thirty", "three", "12", "third", "a320"]
    assert find_numbers(["Dreiundzwanzig", "am", "sechzehnten", "eins", "1.000"], german) == [
        "dreiundzwanzig",
        "sechzehnten",
        "1.000",
    ]
    assert find_numbers(line, spelled_numbers("fr")) == ["12", "a320"]
    assert all(number_words(n)[1] in german for n in (2, 12, 20, 59))
    assert "one" not in english | german
    assert "eins" not in german


def test_copies_and_numbers_by_hand(tmp_path: Path):
    train = pairs(("I saw the dog in Rome", "Ich sah den Hund in Rom"))
    lines = pairs(
        ("In Berlin, Anna has 12 dogs.", "In Berlin hat Anna 12 Hunde."),  # to copy: Berlin, Anna, 12
        ("In Rome 3 of 12 cats.", "In Rom drei von zwölf Katzen."),  # to copy: none; numbers: drei, zwölf
    )
    outputs = {
        ("a", 1): {"test": ["Anna hat Hunde in 13 Berlin", "Zwölf 12 Anna Katzen"]},
        ("b", 1): {"test": lines.tgt},
    }
    finished = make_finished(tmp_path, train=train, tests={"test": lines}, outputs=outputs)
    first, second = copies_and_numbers(finished, "test").rows
    assert (first["copies"], first["numbers"]) == (3, 3)  # numbers of the references: 12 | drei, zwölf
    assert first["copied_percent"] == pytest.approx(200 / 3)
    assert first["number_recall_percent"] == pytest.approx(100 / 3)  # zwölf
    assert first["number_precision_percent"] == pytest.approx(100 / 3)  # of 13 | zwölf, 12
    rates = [value for name, value in second.items() if name.endswith("percent")]
    assert rates == [100] * 4


def test_the_embedded_corpus_has_names_and_numbers(tmp_path: Path):
    corpus = embedded_corpus(train=500)
    test = corpus.splits["test"]
    finished = make_finished(
        tmp_path, train=corpus.splits["train"], tests={"test": test}, outputs={("a", 1): {"test": test.tgt}}
    )
    (row,) = copies_and_numbers(finished, "test").rows
    assert row["copies"] > 100
    assert row["numbers"] > 100
    assert (row["copied_percent"], row["number_f1_percent"]) == (100, 100)


def test_without_words_to_copy_the_accuracy_is_none(tmp_path: Path):
    lines = pairs(("a dog", "ein Hund"))
    finished = make_finished(
        tmp_path, train=lines, tests={"test": lines}, outputs={("a", 1): {"test": ["ein 7"]}}
    )
    (row,) = copies_and_numbers(finished, "test").rows
    assert (row["copies"], row["copied_percent"], row["number_recall_percent"]) == (0, None, None)
    assert (row["numbers"], row["number_precision_percent"]) == (0, 0)
