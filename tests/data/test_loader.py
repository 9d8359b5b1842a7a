"""The stream of batches: every pair once per epoch, reproducible, and resumable at any batch."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.batches import Batch, BatchStream, make_batch
from data.corpus import Pairs, read_corpus
from data.encode import EncodedSplit, encode_split
from data.vocabulary import build_pair
from tests.kits.loader import LENGTHS, many, random_split
from tests.kits.paths import SHARED

MULTI30K = SHARED / "multi30k"


def assert_same(first: Batch, second: Batch) -> None:
    for name, value in vars(first).items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(getattr(second, name))), name


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


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    split = many()
    stream = BatchStream(split, batch_tokens=200, seed=1)
    stream.plan(7)  # earlier plans must not matter
    again = BatchStream(many(), batch_tokens=200, seed=1).plan(2)
    assert [rows.tolist() for rows in stream.plan(2)] == [rows.tolist() for rows in again]


def test_epochs_and_seeds_differ_in_their_batches_not_in_order_alone() -> None:
    """As in real text, many pairs share their lengths. (3, 1) and (1, 3) must also give different batches."""
    split = random_split(np.random.default_rng(0).integers(5, 13, size=(1_000, 2)).tolist())
    draws = ((1, 1), (1, 2), (1, 3), (3, 1), (2, 1), (2, 2))
    plans = [BatchStream(split, batch_tokens=200, seed=seed).plan(epoch) for seed, epoch in draws]
    compositions = [{frozenset(rows.tolist()) for rows in plan} for plan in plans]
    for i, first in enumerate(compositions):
        for second in compositions[:i]:
            assert len(first & second) < 0.05 * len(first)


def test_a_batch_across_two_target_lengths_holds_similar_sources() -> None:
    """A batch that ends one target length and begins the next must not join shortest and longest sources.

    6 target lengths and 11 batches: with sources ascending and descending in turn, padding is 28% on average
    over 8 epochs (25-30% per epoch); with sources ascending in every group it would be 34%.
    """
    lengths = np.random.default_rng(0).integers((2, 1), (40, 7), size=(400, 2)).tolist()
    stream = BatchStream(random_split(lengths), batch_tokens=200, seed=1)
    assert np.mean([stream.padding(epoch)[1] for epoch in range(8)]) < 0.31


def test_sources_of_batches_across_two_target_lengths_alternate_with_the_epoch() -> None:
    """It holds the longest sources of both target lengths in one epoch, the shortest in the next."""
    split = random_split([(source, target) for target in (5, 4) for source in range(1, 11)])
    long_sources: dict[int, set[bool]] = {0: set(), 1: set()}
    for epoch in range(12):
        for rows in BatchStream(split, batch_tokens=18, seed=1).plan(epoch):
            if len(set(split.tgt_lengths[rows].tolist())) == 2:
                long_sources[epoch % 2].add(bool(split.src_lengths[rows].mean() > 5))
    assert {frozenset(values) for values in long_sources.values()} == {frozenset({False}), frozenset({True})}


def test_pairs_of_equal_lengths_are_grouped_at_random() -> None:
    """Neighbours in the corpus must not stay together; a batch holds 7 of the 200 pairs."""
    for epoch in range(4):
        plan = BatchStream(random_split([(6, 10)] * 200), batch_tokens=79, seed=1).plan(epoch)
        batch_of = np.empty(200)
        for number, rows in enumerate(plan):
            batch_of[rows] = number
        assert np.mean(batch_of[1:] == batch_of[:-1]) < 0.2  # 3% expected by chance, 86% in corpus order


def test_batches_come_in_random_order() -> None:
    split = many(1000)
    longest = [
        int(split.tgt_lengths[rows].max()) for rows in BatchStream(split, batch_tokens=300, seed=1).plan(1)
    ]
    ranks = np.argsort(np.argsort(longest))
    assert abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) < 0.4


@pytest.mark.parametrize("start", [0, 1, 7])
def test_an_epoch_is_resumed_from_any_batch(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BatchStream(many(), batch_tokens=200, seed=5)
    whole = list(stream.epoch(3))
    built = []

    def counting(split: EncodedSplit, rows: np.ndarray) -> Batch:
        built.append(rows)
        return make_batch(split, rows)

    monkeypatch.setattr("data.batches.make_batch", counting)
    rest = list(BatchStream(many(), batch_tokens=200, seed=5).epoch(3, start))
    assert len(built) == len(rest) == len(whole) - start
    for mine, theirs in zip(rest, whole[start:], strict=True):
        assert_same(mine, theirs)
    assert list(stream.epoch(3, len(whole))) == []


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
    assert len({base.stream_hash(), *others}) == 8


def test_the_hash_changes_with_the_order_of_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BatchStream(many(60), batch_tokens=200, seed=1)
    expected, plan = stream.stream_hash(), stream.plan(1)
    assert len(plan) > 1
    monkeypatch.setattr(stream, "plan", lambda epoch: plan[::-1])
    assert stream.stream_hash() != expected


TEXT = Pairs(("a b c", "d", "e f", "k l", "a d e k") * 9, ("A B", "C D E", "F G", "H I", "A") * 9)


def kept(folder: Path) -> list[Path]:
    """The files of kept hashes in a folder of encoded splits."""
    return sorted(folder.glob("*/batches-*.json"))


@pytest.fixture
def encoded(tmp_path: Path) -> EncodedSplit:
    return encode_split(TEXT, build_pair(TEXT, kind="words", size=50), folder=tmp_path)


def never(*_: object) -> str:
    raise AssertionError("computed again")


def test_a_hash_is_computed_once(
    encoded: EncodedSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = BatchStream(encoded, batch_tokens=20, seed=1)
    expected = stream.stream_hash()
    assert stream.kept_hash() == expected
    assert len(kept(tmp_path)) == 1
    monkeypatch.setattr(BatchStream, "stream_hash", never)
    again = encode_split(TEXT, build_pair(TEXT, kind="words", size=50), folder=tmp_path)
    assert BatchStream(again, batch_tokens=20, seed=1).kept_hash() == expected


def test_what_the_hash_depends_on_has_a_file_of_its_own(
    encoded: EncodedSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = BatchStream(encoded, batch_tokens=20, seed=1)
    hashes = [
        stream.kept_hash(),
        stream.kept_hash(2),
        BatchStream(encoded, batch_tokens=21, seed=1).kept_hash(),
        BatchStream(encoded, batch_tokens=20, seed=2).kept_hash(),
    ]
    assert len(set(hashes)) == len(kept(tmp_path)) == 4
    monkeypatch.setattr("data.batches.SOURCE_FILES", [])  # other code
    assert stream.kept_hash() == hashes[0]
    monkeypatch.setattr(np, "__version__", "another")
    assert stream.kept_hash() == hashes[0]
    assert len(kept(tmp_path)) == 6


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{}", b'{"sha256":"x"}', b"\xff"])
def test_a_damaged_file_is_replaced(encoded: EncodedSplit, tmp_path: Path, content: bytes) -> None:
    stream = BatchStream(encoded, batch_tokens=20, seed=1)
    expected = stream.kept_hash()
    (path,) = kept(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(content)
    assert stream.kept_hash() == expected
    assert path.read_bytes() == whole


def test_arrays_in_memory_have_no_file(tmp_path: Path) -> None:
    stream = BatchStream(many(60), batch_tokens=200, seed=1)
    assert stream.kept_hash() == stream.stream_hash()


def test_padding_is_that_of_the_batches() -> None:
    stream = BatchStream(many(), batch_tokens=400, seed=1)
    batches = list(stream.epoch(4))
    tgt = torch.cat([batch.tgt_mask.flatten() for batch in batches]).double()
    src = torch.cat([batch.src_mask.flatten() for batch in batches]).double()
    expected = (float(1 - tgt.mean()), float(1 - torch.cat([src, tgt]).mean()))
    assert stream.padding(4) == pytest.approx(expected, abs=1e-12)


def test_a_budget_below_the_longest_target_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"batch_tokens \(9\) must hold the longest target \(10 tokens with EOS\)"
    ):
        BatchStream(random_split([(2, 3), (5, 9)]), batch_tokens=9, seed=1)


def test_padding_on_multi30k_stays_within_the_goal(tmp_path: Path) -> None:
    if not MULTI30K.is_dir():
        pytest.skip("needs multi30k beside the checkout")
    train = read_corpus(MULTI30K, "de", "en").splits["train"]
    vocabularies = build_pair(train, kind="unigram", size=8000, joint=True)
    split = encode_split(train, vocabularies, folder=tmp_path, max_tokens=None)
    stream = BatchStream(split, batch_tokens=4096, seed=1)
    for epoch in (1, 2):
        tgt_share, total_share = stream.padding(epoch)
        assert tgt_share <= 0.02
        assert total_share <= 0.07
    shutil.rmtree(tmp_path)
