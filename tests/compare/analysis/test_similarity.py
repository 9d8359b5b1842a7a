"""The nearest training sentence against a slow twin, and on sentences whose similarity is known."""

import math
import random
from collections import Counter

import pytest

from compare.analysis import similarity
from compare.analysis.similarity import find_nearest


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
