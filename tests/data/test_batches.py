"""Batches and their stream: layout, every pair once per epoch, reproducible, resumable at any batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.batches import BatchStream, decode_batches, make_batch, make_source_batch
from data.vocabulary import BOS, EOS, PAD
from tests.kits.texts import many, random_split, split_of

LENGTHS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=1, max_size=60)


@given(lengths=LENGTHS, seed=st.integers(0, 9))
@settings(deadline=None)
def test_batches_equal_a_plain_loop(lengths: list[tuple[int, int]], seed: int) -> None:
    split = random_split(lengths, seed)
    indices = np.random.default_rng(seed).permutation(len(split))
    batch = make_batch(split, indices)
    for i, index in enumerate(indices):
        src, tgt = (
            side.flat[side.offsets[index] : side.offsets[index + 1]].tolist()
            for side in (split.src, split.tgt)
        )
        for tensor, ids in (
            (batch.src, [*src, EOS]),
            (batch.tgt_in, [BOS, *tgt]),
            (batch.tgt_out, [*tgt, EOS]),
        ):
            assert tensor[i].tolist() == ids + [PAD] * (tensor.shape[1] - len(ids))
        assert batch.src_mask[i].tolist() == [k <= len(src) for k in range(batch.src.shape[1])]
        assert batch.tgt_mask[i].tolist() == [k <= len(tgt) for k in range(batch.tgt_in.shape[1])]
    assert len(batch) == len(indices)
    assert batch.src.dtype == batch.tgt_in.dtype == batch.tgt_out.dtype == batch.rows.dtype == torch.int64
    assert batch.src_mask.dtype == batch.tgt_mask.dtype == torch.bool
    assert batch.src.shape[1] == max(n for n, _ in lengths) + 1
    assert batch.tgt_in.shape[1] == max(n for _, n in lengths) + 1
    assert batch.src_tokens == sum(n for n, _ in lengths)
    assert batch.tgt_tokens == sum(n + 1 for _, n in lengths) == int(batch.tgt_mask.sum())


def test_sources_to_translate_get_eos_and_padding_like_training_sources() -> None:
    src, mask = make_source_batch([[5, 6, 7], [], [8]])
    assert src.tolist() == [[5, 6, 7, EOS], [EOS, PAD, PAD, PAD], [8, EOS, PAD, PAD]]
    assert mask.sum(dim=1).tolist() == [4, 1, 2]
    batch = make_batch(split_of([[5, 6, 7], [], [8]], [[9]] * 3), np.arange(3))
    assert torch.equal(src, batch.src)
    assert torch.equal(mask, batch.src_mask)


def test_moving_a_batch_moves_what_models_read_and_leaves_the_rest_on_the_host() -> None:
    batch = make_batch(many(3), np.arange(3))
    moved = batch.to("meta")
    devices = {name: part.device.type for name, part in vars(moved).items() if isinstance(part, torch.Tensor)}
    assert [name for name, device in devices.items() if device == "cpu"] == ["rows", "src_lengths"]
    assert len(devices) == 7
    assert set(devices.values()) == {"meta", "cpu"}
    assert moved.tgt_tokens == batch.tgt_tokens
    assert batch.src_lengths.tolist() == batch.src_mask.sum(dim=1).tolist()


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 80), max_size=60), budget=st.integers(1, 300))
def test_decode_batches_hold_all_sources_longest_first(lengths: list[int], budget: int) -> None:
    groups = decode_batches(np.array(lengths, dtype=np.int64), budget)
    order = [int(index) for group in groups for index in group]
    assert order == sorted(range(len(lengths)), key=lambda index: -lengths[index])  # stable
    for group in groups:
        assert len(group) == 1 or len(group) * (max(lengths[index] for index in group) + 1) <= budget


@given(lengths=LENGTHS, spare=st.integers(0, 400), seed=st.integers(0, 99), epoch=st.integers(0, 9))
@settings(deadline=None)
def test_every_pair_once_per_epoch_within_the_budget(
    lengths: list[tuple[int, int]], spare: int, seed: int, epoch: int
) -> None:
    split = random_split(lengths)
    budget = max(n for _, n in lengths) + 1 + spare
    stream = BatchStream(split, batch_tokens=budget, seed=seed)
    plan = stream.plan(epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(split)))
    for rows, batch in zip(plan, stream.epoch(epoch), strict=True):
        assert 0 < batch.tgt_out.numel() <= budget
        assert batch.rows.tolist() == (10 * rows).tolist()


def test_batches_are_as_full_as_the_budget_allows() -> None:
    """79 positions hold 7 targets of 11 tokens with EOS; only the first and the last batch may be smaller."""
    split = random_split([(3, 10)] * 100)
    for epoch in range(9):
        sizes = [len(rows) for rows in BatchStream(split, batch_tokens=79, seed=1).plan(epoch)]
        assert len(sizes) <= 16
        assert sorted(sizes)[2:] == [7] * (len(sizes) - 2)


def test_epochs_and_seeds_differ_in_their_batches_not_in_order_alone() -> None:
    """As in real text, many pairs share their lengths. (3, 1) and (1, 3) must also give different batches."""
    split = random_split(np.random.default_rng(0).integers(5, 13, size=(1_000, 2)).tolist())
    draws = ((1, 1), (1, 2), (1, 3), (3, 1), (2, 1), (2, 2))
    plans = [BatchStream(split, batch_tokens=200, seed=seed).plan(epoch) for seed, epoch in draws]
    compositions = [{frozenset(rows.tolist()) for rows in plan} for plan in plans]
    for i, first in enumerate(compositions):
        for second in compositions[:i]:
            assert len(first & second) < 0.05 * len(first)
    lengths = [int(split.tgt_lengths[rows].max()) for rows in plans[0]]  # batches come in random order
    assert abs(np.corrcoef(np.argsort(np.argsort(lengths)), np.arange(len(lengths)))[0, 1]) < 0.4
    batch_of = np.concatenate([np.full(len(rows), number) for number, rows in enumerate(plans[0])])
    batch_of = batch_of[np.argsort(np.concatenate(plans[0]))]
    assert np.mean(batch_of[1:] == batch_of[:-1]) < 0.2  # neighbours in the corpus do not stay together


def test_sources_of_batches_across_two_target_lengths_alternate_with_the_epoch() -> None:
    """It holds the longest sources of both target lengths in one epoch, the shortest in the next."""
    split = random_split([(source, target) for target in (5, 4) for source in range(1, 11)])
    long_sources: dict[int, set[bool]] = {0: set(), 1: set()}
    for epoch in range(12):
        for rows in BatchStream(split, batch_tokens=18, seed=1).plan(epoch):
            if len(set(split.tgt_lengths[rows].tolist())) == 2:
                long_sources[epoch % 2].add(bool(split.src_lengths[rows].mean() > 5))
    assert {frozenset(values) for values in long_sources.values()} == {frozenset({False}), frozenset({True})}


@pytest.mark.parametrize("start", [0, 1, 7])
def test_an_epoch_is_resumed_from_any_batch(start: int) -> None:
    stream = BatchStream(many(), batch_tokens=200, seed=5)
    whole = list(stream.epoch(3))
    rest = BatchStream(many(), batch_tokens=200, seed=5).epoch(3, start)
    for mine, theirs in zip(rest, whole[start:], strict=True):
        for name, value in vars(mine).items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(getattr(theirs, name))), name
    assert list(stream.epoch(3, len(whole))) == []


@pytest.mark.parametrize(("processes", "accumulate"), [(1, 1), (2, 1), (3, 2)])
def test_the_shares_of_all_processes_are_the_batch(processes: int, accumulate: int) -> None:
    stream = BatchStream(many(), batch_tokens=200, seed=5)
    options = {"processes": processes, "accumulate": accumulate}
    ranks = [stream.global_batches(2, rank=rank, **options) for rank in range(processes)]
    for batch, shares in zip(stream.epoch(2), zip(*ranks, strict=True), strict=True):
        rows = [row for share in shares for part in share.parts for row in part.rows.tolist()]
        assert sorted(rows) == sorted(batch.rows.tolist())
        assert {(share.src_tokens, share.tgt_tokens) for share in shares} == {
            (batch.src_tokens, batch.tgt_tokens)
        }
        assert all(len(share.parts) <= accumulate for share in shares)


def test_the_hash_changes_with_any_change_of_the_batches() -> None:
    split = many(60)
    base = BatchStream(split, batch_tokens=200, seed=1)
    assert base.stream_hash() == BatchStream(many(60), batch_tokens=200, seed=1).stream_hash()
    others = [
        BatchStream(split, batch_tokens=200, seed=2).stream_hash(),
        BatchStream(split, batch_tokens=180, seed=1).stream_hash(),
        base.stream_hash(epoch=2),
    ]
    for side in ("src", "tgt"):
        for position in (0, -1):
            changed = many(60)
            getattr(changed, side).flat[position] += 1
            others.append(BatchStream(changed, batch_tokens=200, seed=1).stream_hash())
    reverse = BatchStream(split, batch_tokens=200, seed=1)
    reverse._last_plan = (1, base.plan(1)[::-1])
    others.append(reverse.stream_hash())
    assert len({base.stream_hash(), *others}) == 9


def test_a_budget_below_the_longest_target_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"batch_tokens \(9\) must hold the longest target \(10 tokens with EOS\)"
    ):
        BatchStream(random_split([(2, 3), (5, 9)]), batch_tokens=9, seed=1)
