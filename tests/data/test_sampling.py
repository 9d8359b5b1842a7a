"""Random segmentations: distributions as in the papers, of the same text, by seed, epoch and row alone."""

import math
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data import sampling
from data.batches import BatchStream
from data.corpus import Pairs, embedded_corpus
from data.encode import EncodedSplit, encode_split
from data.sampling import SampledSplit, SubwordSampler
from data.vocabulary import SUBWORD_KINDS, SubwordVocabulary, VocabularyPair, build_pair, build_vocabulary
from tests.kits.texts import ids_of

DRAWS = 5_000
LIMIT = 40
Segmentation = tuple[str, ...]


@cache
def pairs() -> Pairs:
    return embedded_corpus(seed=1, train=120).splits["train"]


@cache
def lines() -> list[str]:
    return [*pairs().src, *pairs().tgt]


@cache
def vocabularies(kind: str) -> VocabularyPair:
    return build_pair(pairs(), kind=kind, size=600, joint=kind == "bpe")


def vocabulary(kind: str) -> SubwordVocabulary:
    built = vocabularies(kind).tgt
    assert isinstance(built, SubwordVocabulary)
    return built


class TinyVocabulary(SubwordVocabulary):
    """A vocabulary of these scores, whose ids are pieces: samples are segmentations that can be read."""

    def __init__(self, kind: str, scores: dict[str, float]) -> None:
        self.kind, self._scores = kind, scores

    def scores(self) -> dict[str, float]:
        return self._scores

    def piece_ids(self, piece: str) -> Any:
        return [piece]

    def marked_texts(self, sentences: Any) -> list[str]:
        return ["".join(pieces) for pieces in sentences]


def shares(kind: str, scores: dict[str, float], word: str, strength: float) -> Any:
    """Return the share of each segmentation of ``word`` in ``DRAWS`` samples."""
    sentences: Any = [[word]] * DRAWS
    samples = SubwordSampler(TinyVocabulary(kind, scores), strength).sample(sentences, range(DRAWS))
    return {pieces: count / DRAWS for pieces, count in Counter(map(tuple, samples)).items()}


def assert_close(measured: dict[Segmentation, float], expected: dict[Segmentation, float]) -> None:
    """Compare shares with probabilities, within 4.5 standard deviations."""
    assert measured.keys() <= expected.keys()
    for pieces, probability in expected.items():
        spread = math.sqrt(probability * (1 - probability) / DRAWS)
        assert abs(measured.get(pieces, 0.0) - probability) <= 4.5 * spread, pieces


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
    assert_close(shares("bpe", scores, "▁ababaab", p), expected)


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
    assert_close(shares("unigram", scores, "▁ababa", alpha), expected)


def test_an_unknown_character_is_a_piece_of_bytes():
    scores = {"a": -3.0, "aé": -9.0}
    unknown = math.exp(0.5 * (-3 - 9 - 10)), math.exp(0.5 * -9)  # a, é or aé
    expected = {("a", "é"): unknown[0] / sum(unknown), ("aé",): unknown[1] / sum(unknown)}
    assert_close(shares("unigram", scores, "aé", 0.5), expected)
    ids = vocabulary("unigram").encode("漢")
    assert SubwordSampler(vocabulary("unigram"), 0.9).sample([ids], [1])[0][-3:] == ids[-3:]


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
@given(text=st.text(), strength=st.floats(0.01, 0.99), seed=st.integers(0, 2**200))
@settings(deadline=None, max_examples=25)
def test_any_text_stays_as_it_is(kind: str, text: str, strength: float, seed: int):
    ids = vocabulary(kind).encode(text)
    (sampled,) = SubwordSampler(vocabulary(kind), strength).sample([ids], [seed])
    assert vocabulary(kind)._text(sampled) == vocabulary(kind)._text(ids) == text


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_a_sample_depends_on_text_and_seed_alone(kind: str, monkeypatch: pytest.MonkeyPatch):
    plain, seeds = vocabulary(kind).encode_all(lines()[:60]), range(60)
    sampler = SubwordSampler(vocabulary(kind), 0.2)
    samples = sampler.sample(plain, seeds)
    assert sum(map(len, samples)) > 1.05 * sum(map(len, plain))
    backwards = [sampler.sample([plain[i]], [i])[0] for i in reversed(seeds)]
    assert backwards[::-1] == samples
    assert sampler.sample(samples, seeds) == samples  # the text counts, not its segmentation
    assert sampler.sample(plain, range(1, 61)) != samples
    monkeypatch.setattr(sampling, "MAX_WORDS", 5)
    assert SubwordSampler(vocabulary(kind), 0.2).sample(plain, seeds) == samples


def test_a_vocabulary_of_one_segmentation_is_refused():
    words = build_vocabulary("words", lines(), size=100)
    with pytest.raises(ValueError, match="needs a unigram or bpe vocabulary, found words"):
        SubwordSampler(words, 0.1)
    for strength in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=f"must be between 0 and 1, found {strength}"):
            SubwordSampler(vocabulary("bpe"), strength)


@pytest.fixture(params=SUBWORD_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def split(kind: str, tmp_path: Path) -> EncodedSplit:
    return encode_split(pairs(), vocabularies(kind), folder=tmp_path, max_tokens=LIMIT)


@pytest.fixture
def sampled(split: EncodedSplit, kind: str) -> SampledSplit:
    return sample(split, kind)


def sample(split: EncodedSplit, kind: str, **changed: Any) -> SampledSplit:
    settings = {"strength": 0.3, "seed": 1, "max_tokens": LIMIT} | changed
    return SampledSplit(split=split, vocabularies=vocabularies(kind), **settings)


def both(split: EncodedSplit) -> list[list[int]]:
    return [*ids_of(split.src), *ids_of(split.tgt)]


def test_the_text_is_kept_and_epochs_seeds_and_sides_differ(
    sampled: SampledSplit, split: EncodedSplit, kind: str
):
    first, second = sampled.epoch(1), sampled.epoch(2)
    assert len({str(both(sample)) for sample in (split, first, second, sampled.with_seed(2).epoch(1))}) == 4
    assert both(sampled.epoch(1)) == both(first)
    assert both(sampled.with_seed(2).with_seed(1).epoch(1)) == both(first)
    assert max(map(len, both(first))) <= LIMIT
    assert (first.rows.tolist(), first.dropped) == (split.rows.tolist(), split.dropped)
    for side in ("src", "tgt"):
        decoded = list(map(getattr(vocabularies(kind), side).decode, ids_of(getattr(second, side))))
        assert decoded == [getattr(pairs(), side)[row] for row in split.rows]
    same = EncodedSplit(src=split.src, tgt=split.src, rows=split.rows, dropped=0)
    if vocabularies(kind).joint:
        assert ids_of(sample(same, kind).epoch(1).src) != ids_of(sample(same, kind).epoch(1).tgt)


def test_a_pair_is_sampled_by_its_index_in_the_corpus(
    sampled: SampledSplit, split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Whatever other pairs there are, in whatever order, and of whatever size the blocks are."""
    indices = np.arange(len(split))[::-3]
    fewer = EncodedSplit(
        src=split.src.take(indices), tgt=split.tgt.take(indices), rows=split.rows[indices], dropped=0
    )
    whole = sampled.epoch(3)
    monkeypatch.setattr(sampling, "CHUNK_PAIRS", 7)
    expected = [*ids_of(whole.src.take(indices)), *ids_of(whole.tgt.take(indices))]
    assert both(sample(fewer, kind).epoch(3)) == expected


def test_a_side_that_would_be_too_long_keeps_its_ids(split: EncodedSplit, kind: str):
    longest = int(max(split.src_lengths.max(), split.tgt_lengths.max()))
    limited, free = (sample(split, kind, max_tokens=limit).epoch(1) for limit in (longest, 10_000))
    changed = 0
    for old, other, limited_side in zip(both(split), both(free), both(limited), strict=True):
        assert limited_side == (other if len(other) <= longest else old)
        changed += len(other) > longest
    assert changed > 0


def test_processes_draw_the_same(sampled: SampledSplit, split: EncodedSplit, kind: str, monkeypatch):
    expected = both(sampled.epoch(2))
    monkeypatch.setattr(sampling, "PAIRS_PER_WORKER", len(split) // 2)
    monkeypatch.setattr(sampling, "worker_count", lambda: 8)
    monkeypatch.setattr(sampling, "CHUNK_PAIRS", 30)
    other = sample(split, kind)
    monkeypatch.setattr(SubwordSampler, "sample", None)  # not in this process
    assert both(other.epoch(2)) == expected


def streams(split: EncodedSplit, kind: str, count: int) -> list[BatchStream]:
    return [BatchStream(sample(split, kind), batch_tokens=200, seed=1) for _ in range(count)]


def test_batches_are_made_of_the_lengths_of_the_epoch(split: EncodedSplit, kind: str):
    stream, resumed = streams(split, kind, 2)
    for epoch in (1, 2):
        drawn, plan = stream.split(epoch), stream.plan(epoch)
        assert sorted(np.concatenate(plan).tolist()) == list(range(len(split)))
        batches = list(stream.epoch(epoch))
        for indices, batch in zip(plan, batches, strict=True):
            assert batch.tgt_out.numel() <= 200
            assert batch.tgt_tokens == int((drawn.tgt_lengths[indices] + 1).sum())
        counts = [[batch.src_tokens, batch.tgt_tokens] for batch in batches]
        assert stream.token_counts(epoch).tolist() == counts
    for batch, other in zip(resumed.epoch(2, 3), batches[3:], strict=True):
        assert torch.equal(batch.src, other.src)
        assert torch.equal(batch.tgt_out, other.tgt_out)
    with pytest.raises(ValueError, match=r"batch_tokens \(40\) must hold the longest target \(41 tokens"):
        BatchStream(sample(split, kind), batch_tokens=LIMIT, seed=1)


def test_the_hash_of_the_batches_covers_the_samples(split: EncodedSplit, kind: str):
    (stream,) = streams(split, kind, 1)
    others = [
        BatchStream(split, batch_tokens=200, seed=1),
        BatchStream(sample(split, kind, strength=0.2), batch_tokens=200, seed=1),
        BatchStream(sample(split, kind, max_tokens=30), batch_tokens=200, seed=1),
        stream.with_seed(2),
    ]
    assert len({other.stream_hash() for other in (stream, *others)}) == 5
