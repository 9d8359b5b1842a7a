"""The nearest training sentence against a slow twin, and on sentences whose similarity is known."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest

from compare.analysis import similarity
from compare.analysis.quality import by_similarity
from compare.analysis.similarity import NEAREST, find_nearest, nearest_row
from tests.kits.experiments import make_finished, pairs


def cosines(train: list[str], sentence: str) -> list[float]:
    """Similarity of a sentence to each training sentence, by the formula."""

    def grams(line: str) -> Counter[str]:
        text = f" {line.lower()} "
        return Counter(text[start : start + 4] for start in range(len(text) - 3))

    lines = [grams(line) for line in train]
    lines_with = Counter(gram for line in lines for gram in line)

    def weighted(line: Counter[str]) -> dict[str, float]:
        return {gram: n * (math.log(len(train) / max(1, lines_with[gram])) + 1) for gram, n in line.items()}

    one, others = weighted(grams(sentence)), [weighted(line) for line in lines]
    length = math.sqrt(sum(x * x for x in one.values()))
    return [
        sum(one.get(gram, 0.0) * x for gram, x in other.items())
        / max(1e-12, length * math.sqrt(sum(x * x for x in other.values())))
        for other in others
    ]


def test_the_nearest_sentence_is_that_of_the_formula(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(similarity, "BLOCK", 7)
    draw = random.Random(1)
    words = ["ab", "Abc", "bcd", "cäb", "日本語", "a", "dcba"]
    train, test = (
        [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(size)] for size in (40, 20)
    )
    nearest = find_nearest(train, test)
    for line, index, value in zip(test, nearest.sentences, nearest.similarity, strict=True):
        expected = cosines(train, line)
        assert value == pytest.approx(max(expected), abs=1e-9)
        assert expected[index] == pytest.approx(max(expected), abs=1e-9)


def test_equal_sentences_have_similarity_1_and_foreign_ones_0():
    train = ["The dog sleeps.", "A cat eats fish.", "the DOG sleeps."]
    nearest = find_nearest(train, ["A CAT eats fish.", "the dog sleeps.", "xyz", ""])
    assert nearest.sentences.tolist() == [1, 0, 0, 0]
    assert nearest.similarity.tolist() == pytest.approx([1.0, 1.0, 0.0, 0.0])


def test_the_baseline_copies_and_quarters_are_scored_apart(tmp_path: Path):
    """It is right about the two sentences that training has, and a model about the two others."""
    seen = [
        ("The old dog sees a red cat.", "Der alte Hund sieht."),
        ("A tree is there.", "Ein Baum ist da."),
    ]
    new = [("Nobody knows why.", "Niemand weiß warum genau."), ("It rains so often.", "Es regnet so oft.")]
    outputs = ["falsch falsch falsch falsch"] * 2 + [target for _, target in new]
    finished = make_finished(
        tmp_path,
        train=pairs(*seen),
        tests={"test": pairs(*seen, *new)},
        outputs={("a", 1): {"test": outputs}},
    )
    rows = by_similarity(finished).rows
    best = {(row["label"], row["seed"]): row for row in rows if row["similarity"].endswith("1.00")}
    assert (best[NEAREST, 1]["sentences"], best[NEAREST, 1]["bleu"]) == (2, pytest.approx(100))
    assert best["a", 1]["bleu"] < 1
    others = {row["label"]: row["bleu"] for row in rows if not row["similarity"].endswith("1.00")}
    assert others == {"a": pytest.approx(100), NEAREST: pytest.approx(0, abs=9)}
    row = nearest_row(finished)
    assert row["label"] == NEAREST
    assert 30 < row["bleu"] < 70
    assert row["chrf"] is not None
