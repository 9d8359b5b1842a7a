"""Splits that are segmented anew for each epoch, and their batches."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data import sampling as sampled_split
from data.batches import BatchStream
from data.corpus import Pairs, embedded_corpus
from data.encode import EncodedSplit, Sequences, encode_split
from data.sampling import SampledSplit, SubwordSampler
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
    monkeypatch.setattr(sampled_split, "worker_count", lambda: 8)
    other = sample(split, kind)
    monkeypatch.setattr(SampledSplit, "_drawn", None)  # not in this process
    for epoch, drawn in zip((2, 3), expected, strict=True):
        other.request(epoch)
        assert both(other.epoch(epoch)) == drawn
    assert len(other._workers) == 2
    if hasattr(os, "getpriority"):
        assert {os.getpriority(os.PRIO_PROCESS, worker._process.pid) for worker in other._workers} == {
            max(10, os.getpriority(os.PRIO_PROCESS, 0))
        }
    other.close()
    assert other._workers == []


def test_a_first_epoch_is_drawn_by_processes_as_well(
    sampled: SampledSplit, split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch
):
    expected = both(sampled.epoch(1))
    monkeypatch.setattr(sampled_split, "PAIRS_PER_WORKER", len(split) // 2)
    monkeypatch.setattr(sampled_split, "CHUNK_PAIRS", 30)
    monkeypatch.setattr(sampled_split, "worker_count", lambda: 8)
    other = sample(split, kind)
    monkeypatch.setattr(SubwordSampler, "sample", None)  # not in this process
    assert both(other.epoch(1)) == expected


def test_a_large_block_is_drawn_in_slices(split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch):
    (block,) = sample(split, kind)._blocks(2, len(split))
    sampler, sizes = sample(split, kind)._sampler, []

    def draw(part: sampled_split.Block) -> sampled_split.Sides:
        sizes.append(len(part[1]))
        return sampler(part)

    monkeypatch.setattr(sampled_split, "CHUNK_PAIRS", 50)
    monkeypatch.setattr(os, "setpriority", lambda *_: None, raising=False)
    drawn = sampled_split._draw_in_background(draw, block)
    assert max(sizes) == 50
    assert sum(sizes) == len(split)
    expected = sampler(block)
    assert [ids(side) for side in drawn] == [ids(side) for side in expected]
    assert [side.flat.dtype for side in drawn] == [side.flat.dtype for side in expected]


@pytest.mark.parametrize("moment", ["before the request", "after it"])
def test_training_goes_on_without_workers_that_were_killed(
    sampled: SampledSplit,
    split: EncodedSplit,
    kind: str,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    expected = both(sampled.epoch(3))
    monkeypatch.setattr(sampled_split, "PAIRS_PER_WORKER", len(split) // 2)
    monkeypatch.setattr(sampled_split, "worker_count", lambda: 2)
    other = sample(split, kind)
    other.request(2)
    first, second = other._workers
    other.epoch(2)
    if moment == "after it":
        other.request(3)
    first._process.kill()
    first._process.wait()
    other.request(3)
    assert both(other.epoch(3)) == expected
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "subword sampling goes on in this process" in caplog.text
    assert second._process.returncode is not None
    other.request(4)
    assert other._workers == []


def test_without_an_interpreter_to_start_nothing_is_requested(
    split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sampled_split, "PAIRS_PER_WORKER", 1)
    monkeypatch.setattr(sys, "executable", "")
    other = sample(split, kind)
    other.request(2)
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


def test_another_version_of_sentencepiece_is_not_trusted_with_a_kept_hash(
    split: EncodedSplit, kind: str, monkeypatch: pytest.MonkeyPatch
):
    (stream,) = streams(split, kind, 1)
    stream.kept_hash(known="kept")
    assert streams(split, kind, 1)[0].kept_hash() == "kept"
    monkeypatch.setattr(sampled_split, "version", lambda package: "0.0")
    assert streams(split, kind, 1)[0].kept_hash() == stream.stream_hash()
