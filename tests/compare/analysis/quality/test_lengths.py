"""Length buckets, and scores by length and by distance from the training lengths."""

from itertools import pairwise
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compare.analysis.quality import Bucket, by_distance, by_length, extract_words, make_buckets, word_counts
from data.corpus import Pairs, embedded_corpus
from tests.kits.finished_experiments import make_finished, pairs

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
        ("In 1999. Then, 5.", ["In", "1999", "Then", "5"]),
        ("?! ...", []),
        ("", []),
    ],
)
def test_words_exclude_punctuation_and_keep_numbers_whole(text: str, expected: list[str]):
    assert extract_words(text) == expected


def test_word_counts_of_the_embedded_corpus():
    corpus = embedded_corpus(train=50)
    short, long = (word_counts(corpus.splits[test].src) for test in ("test", "test_long"))
    assert (min(short), max(short), min(long), max(long)) == (4, 25, 26, 40)


def test_buckets_by_hand():
    # 3 sentences of each length from 1 to 12. For buckets of 6, steps of 1 cut after every second length, and
    # so do steps of 2; steps of 5 cut after 5 (15 inside, 21 left) and after 10 (15 inside, 6 left). For
    # buckets of 7, steps of 1 cut after every third (9 inside), steps of 2 after every fourth (12 inside).
    lengths = [length for length in range(1, 13) for _ in range(3)]
    assert list(map(str, make_buckets(lengths, most=6, least=6))) == [
        "1–2",
        "3–4",
        "5–6",
        "7–8",
        "9–10",
        "11–12",
    ]
    assert list(map(str, make_buckets(lengths, most=5, least=6))) == ["1–5", "6–10", "11–12"]
    assert list(map(str, make_buckets(lengths, most=4, least=7))) == ["1–3", "4–6", "7–9", "10–12"]
    assert list(map(str, make_buckets(lengths, most=3, least=7))) == ["1–4", "5–8", "9–12"]
    assert list(map(str, make_buckets(lengths, most=2, least=7))) == ["1–5", "6–12"]
    assert list(map(str, make_buckets(lengths, most=1, least=6))) == ["1–12"]
    assert list(map(str, make_buckets([7, 7, 7], most=9, least=2))) == ["7"]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=200),
    st.integers(1, 12),
    st.integers(1, 60),
)
@example(lengths=[0, 0, 1], most=1, least=1)  # 0 is a multiple of every step
def test_buckets_partition_the_lengths_and_have_a_minimum_size(lengths: list[int], most: int, least: int):
    buckets = make_buckets(lengths, most=most, least=least)
    assert 1 <= len(buckets) <= most
    assert (buckets[0].low, buckets[-1].high) == (min(lengths), max(lengths))
    assert all(one.high + 1 == two.low for one, two in pairwise(buckets))
    sizes = [sum(bucket.low <= length <= bucket.high for length in lengths) for bucket in buckets]
    assert sum(sizes) == len(lengths)
    assert min(sizes) >= least or len(buckets) == 1
    ends = [bucket.high for bucket in buckets[:-1]]
    assert any(
        all(end % (digit * 10**power) == 0 for end in ends) for power in range(4) for digit in (1, 2, 5)
    )


def test_each_bucket_is_scored_as_a_corpus_over_all_test_sets(tmp_path: Path):
    short, long = line_pairs(*range(3, 9), *[4] * 100), line_pairs(*[9] * 60, *[11] * 60)
    outputs = {
        test: [line.lower() if number % 3 else line for number, line in enumerate(lines.tgt)]
        for test, lines in (("test", short), ("test_long", long))
    }
    perfect = {"test": short.tgt, "test_long": long.tgt}
    finished = make_finished(
        tmp_path,
        train=short,
        tests={"test": short, "test_long": long},
        outputs={("a", 1): outputs, ("b", 2): perfect},
    )
    table = by_length(finished)
    src, tgt = [*short.src, *long.src], [*short.tgt, *long.tgt]
    hypotheses = [*outputs["test"], *outputs["test_long"]]
    rows = [row for row in table.rows if row["label"] == "a"]
    assert [row["source_words"] for row in rows] == ["3–4", "5–9", "10–11"]
    for row in rows:
        low, high = map(int, row["source_words"].split("–"))
        members = [i for i, line in enumerate(src) if low <= len(line.split()) <= high]
        bucket_outputs, references = [hypotheses[i] for i in members], [tgt[i] for i in members]
        expected = sacrebleu.corpus_bleu(bucket_outputs, [references])
        assert row["sentences"] == len(members)
        assert row["bleu"] == pytest.approx(expected.score, abs=1e-12)
        assert row["chrf"] == pytest.approx(
            sacrebleu.corpus_chrf(bucket_outputs, [references]).score, abs=1e-12
        )
        assert row["length_ratio"] == expected.sys_len / expected.ref_len
        assert row["seed"] == 1
    best = [row for row in table.rows if (row["label"], row["seed"]) == ("b", 2)]
    assert [(row["bleu"], row["chrf"], row["length_ratio"]) for row in best] == [(100, 100, 1)] * 3
    assert "test and test_long" in table.caption


def test_distance_is_measured_from_the_longest_sentence_used_in_training(tmp_path: Path):
    # max_tokens = 9 admits 8 words and a full stop; a pair with one longer side is not used at all.
    short, long = sentence(2), sentence(9)
    seen, unseen = line_pairs(5, 8, 6), pairs((long, long), (short, long), (long, short))
    train = Pairs(unseen.src + seen.src, unseen.tgt + seen.tgt)
    test = line_pairs(*[3] * 2, *[5] * 3, *[8] * 4, *[9] * 60, *[13] * 70)
    finished = make_finished(
        tmp_path, train=train, tests={"test": test}, outputs={("a", 1): {"test": test.tgt}}, max_tokens=9
    )
    table = by_distance(finished)
    assert [(row["distance_words"], row["sentences"]) for row in table.rows] == [
        ("below 5", 2),
        ("5–8 (trained)", 7),
        ("1 past", 60),
        ("2–5 past", 70),
    ]
    assert "5–8 words" in table.caption


def test_without_longer_sentences_there_is_one_group(tmp_path: Path):
    lines = line_pairs(4, 5, 6)
    finished = make_finished(
        tmp_path, train=lines, tests={"test": lines}, outputs={("a", 1): {"test": ["", "", ""]}}
    )
    (row,) = by_distance(finished).rows
    assert (row["distance_words"], row["sentences"], row["bleu"]) == ("4–6 (trained)", 3, 0)
    assert row["length_ratio"] == 0


def test_the_name_of_a_bucket_of_one_length_is_one_number():
    assert [str(Bucket(3, 3)), str(Bucket(3, 4))] == ["3", "3–4"]
