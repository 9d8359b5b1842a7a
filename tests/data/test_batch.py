"""Batches for training and translation: layout, masks, and independence of rows from each other."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.batches import _copy_together, decode_batches, make_batch, make_source_batch
from data.symbols import BOS, EOS, PAD
from tests.kits.loader import LENGTHS, many, random_split, split_of


def test_a_batch_written_by_hand() -> None:
    split = split_of([[5, 6, 7], [8], []], [[9], [10, 11], [12, 13, 14]])
    batch = make_batch(split, np.array([1, 0]))
    assert batch.src.tolist() == [[8, EOS, PAD, PAD], [5, 6, 7, EOS]]
    assert batch.src_mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.tgt_in.tolist() == [[BOS, 10, 11], [BOS, 9, PAD]]
    assert batch.tgt_out.tolist() == [[10, 11, EOS], [9, EOS, PAD]]
    assert batch.tgt_mask.tolist() == [[True] * 3, [True, True, False]]
    assert batch.rows.tolist() == [10, 0]
    assert (batch.src_tokens, batch.tgt_tokens, len(batch)) == (4, 5, 2)
    assert batch.src.dtype == batch.tgt_in.dtype == batch.tgt_out.dtype == batch.rows.dtype == torch.int64
    assert batch.src_mask.dtype == batch.tgt_mask.dtype == torch.bool


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
    assert batch.src.shape[1] == max(n for n, _ in lengths) + 1
    assert batch.tgt_in.shape[1] == max(n for _, n in lengths) + 1
    assert batch.src_tokens == sum(n for n, _ in lengths)
    assert batch.tgt_tokens == sum(n + 1 for _, n in lengths) == int(batch.tgt_mask.sum())


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    split = many(40)
    batch = make_batch(split, np.arange(40))
    for row in range(40):
        alone = make_batch(split, np.array([row]))
        assert torch.equal(batch.src[row][batch.src_mask[row]], alone.src[0])
        assert torch.equal(batch.tgt_in[row][batch.tgt_mask[row]], alone.tgt_in[0])
        assert torch.equal(batch.tgt_out[row][batch.tgt_mask[row]], alone.tgt_out[0])


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


def test_one_transfer_carries_ids_and_masks_unchanged() -> None:
    """As to a GPU, but for the page-locked memory."""
    batch = make_batch(many(5), np.arange(5))
    parts = [batch.src, batch.tgt_in, batch.tgt_out, batch.src_mask, batch.tgt_mask[:, 1:]]
    copies = _copy_together(parts, torch.device("cpu"), pin_memory=False)
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 1
    for part, copy in zip(parts, copies, strict=True):
        assert copy.dtype == part.dtype
        assert torch.equal(copy, part)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 80), max_size=60), budget=st.integers(1, 300))
def test_decode_batches_hold_all_sources_longest_first(lengths: list[int], budget: int) -> None:
    groups = decode_batches(np.array(lengths, dtype=np.int64), budget)
    order = [int(index) for group in groups for index in group]
    assert order == sorted(range(len(lengths)), key=lambda index: -lengths[index])  # stable
    for group in groups:
        assert len(group) == 1 or len(group) * (max(lengths[index] for index in group) + 1) <= budget


def test_decode_batches_of_a_split_use_its_source_lengths() -> None:
    split = random_split([(2, 9), (8, 1), (5, 5)])
    assert [group.tolist() for group in decode_batches(split, 12)] == [[1], [2, 0]]
