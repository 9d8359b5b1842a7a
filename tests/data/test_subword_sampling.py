"""Random segmentations: distributions as in the papers, of the same text, by the seed alone."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import sampling as subword_sampling
from data.corpus import embedded_corpus
from data.sampling import SAMPLERS, BpeDropout, SubwordSampler, UnigramSampling, build_sampler
from data.subwords import SubwordVocabulary
from data.vocabulary import build_vocabulary
from tests.kits.hostile import texts

DRAWS = 5_000
Segmentation = tuple[str, ...]


@cache
def lines() -> list[str]:
    train = embedded_corpus(seed=1, train=200).splits["train"]
    return [*train.src, *train.tgt]


@cache
def vocabulary(kind: str) -> SubwordVocabulary:
    built = build_vocabulary(kind, lines(), size=700)
    assert isinstance(built, SubwordVocabulary)
    return built


class TinyVocabulary:
    """A vocabulary of these scores, whose ids are pieces: samples are segmentations that can be read."""

    def __init__(self, scores: dict[str, float]) -> None:
        self._scores = scores

    def scores(self) -> dict[str, float]:
        return self._scores

    def piece_ids(self, pieces: Sequence[str]) -> list[str]:
        return list(pieces)

    def marked_texts(self, sentences: Sequence[Sequence[str]]) -> list[str]:
        return ["".join(pieces) for pieces in sentences]


def shares(sampler: type[SubwordSampler], scores: dict[str, float], word: str, strength: float) -> Any:
    """Return the share of each segmentation of ``word`` in ``DRAWS`` samples."""
    tiny: Any = TinyVocabulary(scores)
    samples: Any = sampler(tiny, strength).sample([[word]] * DRAWS, range(DRAWS))
    return {pieces: count / DRAWS for pieces, count in Counter(map(tuple, samples)).items()}


def assert_close(found: dict[Segmentation, float], expected: dict[Segmentation, float]) -> None:
    """Compare shares with probabilities, within 4.5 standard deviations."""
    assert found.keys() <= expected.keys()
    for pieces, probability in expected.items():
        spread = math.sqrt(probability * (1 - probability) / DRAWS)
        assert abs(found.get(pieces, 0.0) - probability) <= 4.5 * spread, pieces


def test_a_merge_is_left_out_with_probability_p():
    """One merge; then one that needs another: the word is as far as the first merge that is dropped."""
    assert_close(shares(BpeDropout, {"ab": -1}, "ab", 0.1), {("ab",): 0.9, ("a", "b"): 0.1})
    chain = {("abc",): 0.49, ("ab", "c"): 0.21, ("a", "b", "c"): 0.3}
    assert_close(shares(BpeDropout, {"ab": -1, "abc": -2}, "abc", 0.3), chain)


def test_a_dropped_merge_is_drawn_again_after_another_one():
    """Two merges that do not touch: the first one, if dropped, has a second chance after the other."""
    p = 0.3
    expected = {
        ("ab", "cd"): (1 - p) ** 2 * (1 + p),
        ("ab", "c", "d"): (1 - p) * p,
        ("a", "b", "cd"): p * (1 - p) * p,
        ("a", "b", "c", "d"): p * p,
    }
    assert_close(shares(BpeDropout, {"ab": -1, "cd": -2}, "abcd", p), expected)


def dropout(scores: dict[str, float], symbols: Segmentation, p: float) -> dict[Segmentation, float]:
    """Compute the distribution of algorithm 1 of the paper, all draws of a step one by one."""
    pairs = [a + b for a, b in pairwise(symbols)]
    merges = sorted((-scores[pair], i) for i, pair in enumerate(pairs) if pair in scores)
    result = Counter({symbols: p ** len(merges)})
    for dropped, (_, i) in enumerate(merges):
        after = (*symbols[:i], pairs[i], *symbols[i + 2 :])
        for pieces, probability in dropout(scores, after, p).items():
            result[pieces] += p**dropped * (1 - p) * probability
    return dict(result)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_dropout_is_algorithm_1(p: float):
    scores = dict.fromkeys(["ab", "ba", "aba", "bab", "abab", "aa", "baa", "▁a"], 0.0)
    scores = {piece: -1.0 - number for number, piece in enumerate(scores)}
    expected = dropout(scores, tuple("▁ababaab"), p)
    assert abs(sum(expected.values()) - 1) < 1e-12
    assert len(expected) > 20
    assert_close(shares(BpeDropout, scores, "▁ababaab", p), expected)


def segmentations(scores: dict[str, float], word: str) -> dict[Segmentation, float]:
    """Return the log-probability of each segmentation of a word."""
    if not word:
        return {(): 0.0}
    return {
        (word[:end], *rest): scores[word[:end]] + score
        for end in range(1, len(word) + 1)
        if word[:end] in scores
        for rest, score in segmentations(scores, word[end:]).items()
    }


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_unigram_sampling_has_powers_of_the_probabilities(alpha: float):
    scores = {"a": -3.0, "b": -4.0, "ab": -4.5, "ba": -5.0, "aba": -6.0, "▁": -2.0, "▁a": -3.5}
    weights = {pieces: math.exp(alpha * score) for pieces, score in segmentations(scores, "▁ababa").items()}
    expected = {pieces: weight / sum(weights.values()) for pieces, weight in weights.items()}
    assert len(expected) > 10
    assert_close(shares(UnigramSampling, scores, "▁ababa", alpha), expected)


def test_an_unknown_character_is_a_piece_of_bytes():
    scores = {"a": -3.0, "aé": -9.0}
    unknown = math.exp(0.5 * (-3 - 9 - 10)), math.exp(0.5 * -9)  # a, é or aé
    expected = {("a", "é"): unknown[0] / sum(unknown), ("aé",): unknown[1] / sum(unknown)}
    assert_close(shares(UnigramSampling, scores, "aé", 0.5), expected)
    ids = vocabulary("unigram").encode("漢")
    assert build_sampler(vocabulary("unigram"), 0.9).sample([ids], [1])[0][-3:] == ids[-3:]


def test_without_dropout_the_segmentation_is_the_usual_one():
    plain = vocabulary("bpe").encode_all(lines())
    assert build_sampler(vocabulary("bpe"), 1e-300).sample(plain, range(len(plain))) == plain


def test_with_a_large_alpha_the_segmentation_is_the_best_one():
    """Several may be the best but for rounding."""
    unigram = vocabulary("unigram")
    scores = {unigram.piece_ids([piece])[0]: score for piece, score in unigram.scores().items()}
    plain = unigram.encode_all(lines())
    sampled = UnigramSampling(unigram, 1e5).sample(plain, range(len(plain)))
    for ids, best in zip(sampled, plain, strict=True):
        found, expected = (math.fsum(scores.get(i, 0.0) for i in each) for each in (ids, best))  # 0: a byte
        assert math.isclose(found, expected, abs_tol=1e-3)


@pytest.mark.parametrize("kind", SAMPLERS)
@given(text=texts, strength=st.floats(0.01, 0.99), seed=st.integers(0, 2**200))
@settings(deadline=None, max_examples=25)
def test_any_text_stays_as_it_is(kind: str, text: str, strength: float, seed: int):
    ids = vocabulary(kind).encode(text)
    (sampled,) = build_sampler(vocabulary(kind), strength).sample([ids], [seed])
    assert vocabulary(kind)._text(sampled) == vocabulary(kind)._text(ids) == text


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_sample_depends_on_text_and_seed_alone(kind: str, monkeypatch: pytest.MonkeyPatch):
    plain = vocabulary(kind).encode_all(lines()[:60])
    seeds = range(60)
    samples = build_sampler(vocabulary(kind), 0.2).sample(plain, seeds)
    assert sum(map(len, samples)) > 1.05 * sum(map(len, plain))
    assert [vocabulary(kind).decode(ids) for ids in samples] == lines()[:60]
    sampler = build_sampler(vocabulary(kind), 0.2)
    backwards = [sampler.sample([plain[i]], [i])[0] for i in reversed(seeds)]
    assert backwards[::-1] == samples
    assert sampler.sample(samples, seeds) == samples  # the text counts, not its segmentation
    assert sampler.sample(plain, range(1, 61)) != samples
    monkeypatch.setattr(subword_sampling, "MAX_WORDS", 5)
    assert build_sampler(vocabulary(kind), 0.2).sample(plain, seeds) == samples


def test_a_vocabulary_of_one_segmentation_is_refused():
    words = build_vocabulary("words", lines(), size=100)
    with pytest.raises(ValueError, match="needs a vocabulary of bpe or unigram, found words"):
        build_sampler(words, 0.1)
    for strength in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=f"must be between 0 and 1, found {strength}"):
            build_sampler(vocabulary("bpe"), strength)
