"""Splits that are segmented anew for each epoch, and their batches."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data import sampled_split
from data.corpus import Pairs, embedded_corpus
from data.encode import encode_split
from data.encoded_split import EncodedSplit, Sequences
from data.loader import BatchStream
from data.sampled_split import SampledSplit
from data.vocabulary import VocabularyPair, build_pair

LIMIT = 40


@cache
def pairs() -> Pairs:
    return embedded_corpus(seed=1, train=120).splits["train"]


@cache
def vocabularies(kind: str) -> VocabularyPair:
    return build_pair(pairs(), kind=kind, size=600, joint=kind == "bpe")


@pytest.fixture(params=["bpe", "unigram"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def split(kind: str, tmp_path: Path) -> EncodedSplit:
    return encode_split(pairs(), vocabularies(kind), folder=tmp_path, max_tokens=LIMIT)


@pytest.fixture
def sampled(split: EncodedSplit, kind: str) -> Iterator[SampledSplit]:
    made = sample(split, kind)
    yield made
    made.close()


def sample(split: EncodedSplit, kind: str, **settings: Any) -> SampledSplit:
    settings = {"strength": 0.3, "seed": 1, "max_tokens": LIMIT} | settings
    return SampledSplit(split, vocabularies(kind), **settings)


def ids(sequences: Sequences) -> list[list[int]]:
    ends = zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True)
    return [sequences.flat[start:end].tolist() for start, end in ends]


def both(split: EncodedSplit) -> list[list[int]]:
    return [*ids(split.src), *ids(split.tgt)]


def test_the_text_is_kept_and_epochs_seeds_and_sides_differ(
    sampled: SampledSplit, split: EncodedSplit, kind: str
):
    first, second = sampled.epoch(1), sampled.epoch(2)
    assert len({str(both(each)) for each in (split, first, second, sampled.with_seed(2).epoch(1))}) == 4
    assert both(sampled.epoch(1)) == both(first)
    assert both(sampled.with_seed(2).with_seed(1).epoch(1)) == both(first)
    assert max(map(len, both(first))) <= LIMIT
    assert (first.rows.tolist(), first.dropped) == (split.rows.tolist(), split.dropped)
    for side in ("src", "tgt"):
        vocabulary, lines = getattr(vocabularies(kind), side), getattr(pairs(), side)
        texts = [vocabulary.decode(each) for each in ids(getattr(second, side))]
        assert texts == [lines[row] for row in split.rows]
    same = EncodedSplit(src=split.src, tgt=split.src, rows=split.rows, dropped=0)
    if vocabularies(kind).joint:
        assert ids(sample(same, kind).epoch(1).src) != ids(sample(same, kind).epoch(1).tgt)


def test_a_pair_is_sampled_by_its_index_in_the_corpus(sampled: SampledSplit, split: EncodedSplit, kind: str):
    """Whatever other pairs there are, in whatever order, and of whatever size the blocks are."""
    indices = np.arange(len(split))[::-3]
    fewer = EncodedSplit(
        src=split.src.take(indices), tgt=split.tgt.take(indices), rows=split.rows[indices], dropped=0
    )
    whole = sampled.epoch(3)
    expected = [*ids(whole.src.take(indices)), *ids(whole.tgt.take(indices))]
    assert both(sample(fewer, kind).epoch(3)) == expected


def test_a_side_that_would_be_too_long_keeps_its_ids(split: EncodedSplit, kind: str):
    longest = int(max(split.src_lengths.max(), split.tgt_lengths.max()))
    limited, free = (
        sample(split, kind, strength=0.3, max_tokens=limit).epoch(1) for limit in (longest, 10_000)
    )
    changed = 0
    for given, other, found in zip(both(split), both(free), both(limited), strict=True):
        assert found == (other if len(other) <= longest else given)
        changed += len(other) > longest
    assert changed > 0


def test_processes_draw_the_same(
    sampled: SampledSplit, split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch
):
    expected = [both(sampled.epoch(epoch)) for epoch in (2, 3)]
    monkeypatch.setattr(sampled_split, "PAIRS_PER_WORKER", len(split) // 2)
    monkeypatch.setattr(sampled_split, "available_cores", lambda: 8)
    other = sample(split, kind)
    monkeypatch.setattr(SampledSplit, "_drawn", None)  # not in this process
    for epoch, drawn in zip((2, 3), expected, strict=True):
        other.request(epoch)
        assert both(other.epoch(epoch)) == drawn
    assert len(other._workers) == 2
    other.close()
    assert other._workers == []


def test_a_request_that_is_not_fetched_changes_nothing(
    sampled: SampledSplit, split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sampled_split, "PAIRS_PER_WORKER", len(split))
    other = sample(split, kind)
    other.request(9)
    other.request(8)
    assert both(other.epoch(2)) == both(sampled.epoch(2))
    other.close()
    assert both(other.epoch(9)) == both(sampled.epoch(9))


def streams(split: EncodedSplit, kind: str, count: int) -> list[BatchStream]:
    return [BatchStream(sample(split, kind), batch_tokens=200, seed=1) for _ in range(count)]


def test_batches_are_made_of_the_lengths_of_the_epoch(split: EncodedSplit, kind: str):
    (stream,) = streams(split, kind, 1)
    for epoch in (1, 2):
        drawn, plan = stream.split(epoch), stream.plan(epoch)
        assert sorted(np.concatenate(plan).tolist()) == list(range(len(split)))
        counts = []
        for indices, batch in zip(plan, stream.epoch(epoch), strict=True):
            assert batch.tgt_out.numel() <= 200
            assert batch.tgt_tokens == int((drawn.tgt_lengths[indices] + 1).sum())
            counts.append([batch.src_tokens, batch.tgt_tokens])
        assert stream.token_counts(epoch).tolist() == counts
    with pytest.raises(ValueError, match=r"batch_tokens \(40\) must hold the longest target \(41 tokens"):
        BatchStream(sample(split, kind), batch_tokens=LIMIT, seed=1)


def test_an_epoch_goes_on_where_it_stopped(split: EncodedSplit, kind: str):
    whole, resumed = streams(split, kind, 2)
    rest = list(resumed.global_batches(2, 3))
    expected = [batch for epoch in (1, 2) for batch in whole.global_batches(epoch)][-len(rest) :]
    for batch, other in zip(rest, expected, strict=True):
        assert torch.equal(batch.parts[0].src, other.parts[0].src)
        assert torch.equal(batch.parts[0].tgt_out, other.parts[0].tgt_out)


def test_processes_share_the_same_batches(split: EncodedSplit, kind: str):
    one, first, second = streams(split, kind, 3)
    shares = zip(
        *(each.global_batches(2, rank=rank, processes=2) for rank, each in enumerate((first, second))),
        strict=True,
    )
    for whole, parts in zip(one.global_batches(2), shares, strict=True):
        rows = [row for part in parts for batch in part.parts for row in batch.rows.tolist()]
        assert sorted(rows) == sorted(whole.parts[0].rows.tolist())
        assert {(part.src_tokens, part.tgt_tokens) for part in parts} == {
            (whole.src_tokens, whole.tgt_tokens)
        }
        assert whole.tgt_tokens == sum(batch.tgt_tokens for part in parts for batch in part.parts)


def test_the_hash_of_the_batches_covers_the_samples(split: EncodedSplit, kind: str):
    (stream,) = streams(split, kind, 1)
    expected = stream.stream_hash()
    assert stream.kept_hash() == expected == stream.kept_hash()
    others = [
        BatchStream(split, batch_tokens=200, seed=1),
        BatchStream(sample(split, kind, strength=0.2), batch_tokens=200, seed=1),
        BatchStream(sample(split, kind, max_tokens=30), batch_tokens=200, seed=1),
        stream.with_seed(2),
    ]
    hashes = {other.kept_hash() for other in others}
    assert len(hashes | {expected}) == 5
    assert hashes == {other.stream_hash() for other in others}
    assert stream.kept_hash(2) == stream.stream_hash(2) != expected
