"""Encoded splits, batches and the stream: nothing lost, nothing repeated, the same again from anywhere."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.batch import Batch, make_batch, make_source_batch
from data.corpus import Pairs, read_corpus
from data.encoded import EncodedSplit, Sequences, encode_split
from data.loader import BatchStream, decode_batches
from data.symbols import BOS, EOS, PAD
from data.vocabulary import VocabularyPair, build_pair

MULTI30K = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k"
TRAIN = Pairs(
    ("a b c", "d", "e f g h i j", "k l", "a d e k"),
    ("A B", "C D E", "F G", "H I J K L M N", "A"),
)


def split_of(src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> EncodedSplit:
    """An encoded split of these ids, its rows numbered in tens."""
    rows = 10 * np.arange(len(src))
    return EncodedSplit(src=Sequences.of(src), tgt=Sequences.of(tgt), rows=rows, dropped=0)


def random_split(lengths: Sequence[tuple[int, int]], seed: int = 0) -> EncodedSplit:
    """A split of random ids with these source and target lengths."""
    generator = np.random.default_rng(seed)
    src, tgt = (
        [generator.integers(4, 99, size=n).tolist() for n in side] for side in zip(*lengths, strict=True)
    )
    return split_of(src, tgt)


def many(count: int = 300, seed: int = 0) -> EncodedSplit:
    """A split of ``count`` pairs of 1 to 30 ids a side."""
    generator = np.random.default_rng(seed)
    return random_split(generator.integers(1, 31, size=(count, 2)).tolist(), seed)


LENGTHS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def words() -> VocabularyPair:
    return build_pair(TRAIN, kind="words", size=100, joint=False)


def assert_same(first: Batch, second: Batch) -> None:
    for name, value in vars(first).items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(getattr(second, name))), name


# Encoded splits


def test_encoding_keeps_all_pairs_within_the_limit(words: VocabularyPair, tmp_path: Path) -> None:
    every = encode_split(TRAIN, words, folder=tmp_path, max_tokens=None)
    assert (len(every), every.dropped) == (5, 0)
    assert every.src_lengths.tolist() == [3, 1, 6, 2, 4]
    assert every.tgt_lengths.tolist() == [2, 3, 2, 7, 1]
    some = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert (len(some), some.dropped) == (3, 2)
    assert some.rows.tolist() == [0, 1, 4]
    for place, row in enumerate(some.rows):
        for side, vocabulary, lines in ((some.src, words.src, TRAIN.src), (some.tgt, words.tgt, TRAIN.tgt)):
            ids = side.flat[side.offsets[place] : side.offsets[place + 1]]
            assert vocabulary.decode(ids.tolist()) == lines[row]
    with pytest.raises(ValueError, match=r"max_tokens \(1\) leaves none of 5 pairs; the shortest has 3 ids"):
        encode_split(TRAIN, words, folder=tmp_path, max_tokens=1)


def test_the_cache_is_memory_mapped_and_its_manifest_counts(words: VocabularyPair, tmp_path: Path) -> None:
    split = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert isinstance(split.src.flat, np.memmap)
    assert isinstance(split.tgt.flat, np.memmap)
    assert split.src.flat.dtype == np.int32
    manifest = json.loads(next(tmp_path.glob("*/manifest.json")).read_bytes())
    assert {name: manifest[name] for name in ("pairs", "dropped", "src_tokens", "tgt_tokens")} == {
        "pairs": 3,
        "dropped": 2,
        "src_tokens": 8,
        "tgt_tokens": 6,
    }
    assert not list(tmp_path.rglob("*.tmp"))


class Forbidden:
    """A vocabulary that may not be asked to encode."""

    def __init__(self, pair: VocabularyPair) -> None:
        self.content_hash = pair.content_hash


def test_the_second_call_encodes_nothing(words: VocabularyPair, tmp_path: Path) -> None:
    first = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    second = encode_split(TRAIN, Forbidden(words), folder=tmp_path, max_tokens=4)  # type: ignore[arg-type]
    assert second.dropped == first.dropped
    for mine, theirs in zip(
        (*second.src, *second.tgt, second.rows), (*first.src, *first.tgt, first.rows), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_another_text_vocabulary_or_limit_is_another_cache(words: VocabularyPair, tmp_path: Path) -> None:
    letters = build_pair(TRAIN, kind="characters", size=100, joint=False)
    other = Pairs((*TRAIN.src[:-1], "a d e l"), TRAIN.tgt)
    moved = Pairs(("a b c d", *TRAIN.src[1:]), TRAIN.tgt)
    for pairs, vocabularies, limit in (
        (TRAIN, words, None),
        (TRAIN, words, 4),
        (TRAIN, letters, None),
        (other, words, None),
        (moved, words, None),
    ):
        encode_split(pairs, vocabularies, folder=tmp_path, max_tokens=limit)
    assert len(os.listdir(tmp_path)) == 5


@pytest.mark.parametrize("name", ["src_ids", "src_offsets", "tgt_ids", "tgt_offsets", "rows"])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "remove"])
def test_a_damaged_array_is_built_again(
    words: VocabularyPair, tmp_path: Path, name: str, damage: str
) -> None:
    encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    path = next(tmp_path.glob(f"*/{name}.npy"))
    whole = path.read_bytes()
    path.unlink()
    if damage != "remove":
        flipped = whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:]
        path.write_bytes({"flip": flipped, "cut": whole[:-1], "grow": whole + b"\0"}[damage])
    split = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert split.src_lengths.tolist() == [3, 1, 4]
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"dropped":0,"sha256":{}}', b'{"sha256":null}', b"\xff"]
)
def test_a_damaged_manifest_is_built_again(words: VocabularyPair, tmp_path: Path, content: bytes) -> None:
    encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    path = next(tmp_path.glob("*/manifest.json"))
    whole = path.read_bytes()
    path.write_bytes(content)
    assert encode_split(TRAIN, words, folder=tmp_path, max_tokens=4).dropped == 2
    assert path.read_bytes() == whole


def test_a_run_killed_at_any_write_leaves_nothing_that_is_used(
    words: VocabularyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Die at rename number 1, 2, ...: the arrays, then the manifest; the next run must start over."""
    replace = os.replace
    for survived in range(6):
        renames = 0

        def dying(source: str, target: Path, survived: int = survived) -> None:
            nonlocal renames
            if renames == survived:
                raise KeyboardInterrupt
            renames += 1
            replace(source, target)

        folder = tmp_path / str(survived)
        monkeypatch.setattr(os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            encode_split(TRAIN, words, folder=folder, max_tokens=4)
        monkeypatch.setattr(os, "replace", replace)
        assert len(list(folder.rglob("*.npy"))) == survived
        assert not list(folder.rglob("manifest.json"))
        with pytest.raises(AttributeError):  # it has to encode again
            encode_split(TRAIN, Forbidden(words), folder=folder, max_tokens=4)  # type: ignore[arg-type]
        assert encode_split(TRAIN, words, folder=folder, max_tokens=4).rows.tolist() == [0, 1, 4]


# Batches


def test_a_batch_by_hand() -> None:
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
    rows = np.random.default_rng(seed).permutation(len(split))
    batch = make_batch(split, rows)
    for i, row in enumerate(rows):
        src, tgt = (
            side.flat[side.offsets[row] : side.offsets[row + 1]].tolist() for side in (split.src, split.tgt)
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


def test_sources_to_translate_are_framed_like_training_sources() -> None:
    src, mask = make_source_batch([[5, 6, 7], [], [8]])
    assert src.tolist() == [[5, 6, 7, EOS], [EOS, PAD, PAD, PAD], [8, EOS, PAD, PAD]]
    assert mask.sum(dim=1).tolist() == [4, 1, 2]
    batch = make_batch(split_of([[5, 6, 7], [], [8]], [[9]] * 3), np.arange(3))
    assert torch.equal(src, batch.src)
    assert torch.equal(mask, batch.src_mask)


def test_moving_a_batch_moves_all_its_tensors() -> None:
    moved = make_batch(many(3), np.arange(3)).to("meta")
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert moved.tgt_tokens == make_batch(many(3), np.arange(3)).tgt_tokens


# The stream


@given(lengths=LENGTHS, spare=st.integers(0, 400), seed=st.integers(0, 99), epoch=st.integers(0, 9))
@settings(deadline=None)
def test_every_pair_once_an_epoch_within_the_budget(
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
    """79 places hold 7 targets of 11 with EOS; only the first and the last batch cut may be smaller."""
    split = random_split([(3, 10)] * 100)
    for epoch in range(9):
        sizes = [len(rows) for rows in BatchStream(split, batch_tokens=79, seed=1).plan(epoch)]
        assert len(sizes) <= 16
        assert sorted(sizes)[2:] == [7] * (len(sizes) - 2)


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    split = many()
    stream = BatchStream(split, batch_tokens=200, seed=1)
    stream.plan(7)  # what was planned before must not matter
    again = BatchStream(many(), batch_tokens=200, seed=1).plan(2)
    assert [rows.tolist() for rows in stream.plan(2)] == [rows.tolist() for rows in again]


def test_epochs_and_seeds_differ_in_their_batches_not_in_order_alone() -> None:
    """As in real text, many pairs share their lengths; (3, 1) and (1, 3) must not be one draw either."""
    split = random_split(np.random.default_rng(0).integers(5, 13, size=(1_000, 2)).tolist())
    draws = ((1, 1), (1, 2), (1, 3), (3, 1), (2, 1), (2, 2))
    plans = [BatchStream(split, batch_tokens=200, seed=seed).plan(epoch) for seed, epoch in draws]
    compositions = [{frozenset(rows.tolist()) for rows in plan} for plan in plans]
    for i, first in enumerate(compositions):
        for second in compositions[:i]:
            assert len(first & second) < 0.05 * len(first)


def test_neighbours_over_a_border_of_lengths_fit_too() -> None:
    """A batch that ends one target length and begins the next must not join shortest and longest sources.

    6 target lengths and 11 batches: sources that go up and down in turn leave 28% padding in the mean of
    8 epochs (25-30% in each), sources that go up in every group 34%.
    """
    lengths = np.random.default_rng(0).integers((2, 1), (40, 7), size=(400, 2)).tolist()
    stream = BatchStream(random_split(lengths), batch_tokens=200, seed=1)
    assert np.mean([stream.padding(epoch)[1] for epoch in range(8)]) < 0.31


def test_what_meets_at_a_border_changes_with_the_epoch() -> None:
    """Of two target lengths the longest sources meet in one epoch, the shortest in the next."""
    split = random_split([(source, target) for target in (5, 4) for source in range(1, 11)])
    met: dict[int, set[bool]] = {0: set(), 1: set()}
    for epoch in range(12):
        for rows in BatchStream(split, batch_tokens=18, seed=1).plan(epoch):
            if len(set(split.tgt_lengths[rows].tolist())) == 2:
                met[epoch % 2].add(bool(split.src_lengths[rows].mean() > 5))
    assert {frozenset(sides) for sides in met.values()} == {frozenset({False}), frozenset({True})}


def test_chance_alone_groups_pairs_of_equal_lengths() -> None:
    """Pairs that stand side by side in the corpus must not stay together: 7 of 200 go into a batch."""
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

    monkeypatch.setattr("data.loader.make_batch", counting)
    rest = list(BatchStream(many(), batch_tokens=200, seed=5).epoch(3, start))
    assert len(built) == len(rest) == len(whole) - start
    for mine, theirs in zip(rest, whole[start:], strict=True):
        assert_same(mine, theirs)
    assert list(stream.epoch(3, len(whole))) == []


def test_the_hash_tells_any_change_of_what_is_fed() -> None:
    split = many(60)
    base = BatchStream(split, batch_tokens=200, seed=1)
    assert base.stream_hash() == BatchStream(many(60), batch_tokens=200, seed=1).stream_hash()
    others = [
        BatchStream(split, batch_tokens=200, seed=2).stream_hash(),
        BatchStream(split, batch_tokens=180, seed=1).stream_hash(),
        base.stream_hash(epoch=2),
    ]
    for side in ("src", "tgt"):
        for place in (0, -1):
            changed = many(60)
            getattr(changed, side).flat[place] += 1
            others.append(BatchStream(changed, batch_tokens=200, seed=1).stream_hash())
    assert len({base.stream_hash(), *others}) == 8


def test_padding_is_counted_like_the_batches_show_it() -> None:
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


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 80), max_size=60), budget=st.integers(1, 300))
def test_decode_batches_hold_all_sources_longest_first(lengths: list[int], budget: int) -> None:
    groups = decode_batches(np.array(lengths, dtype=np.int64), budget)
    order = [int(row) for rows in groups for row in rows]
    assert order == sorted(range(len(lengths)), key=lambda row: -lengths[row])  # stable
    for rows in groups:
        assert len(rows) == 1 or len(rows) * (max(lengths[row] for row in rows) + 1) <= budget


def test_decode_batches_take_a_split_by_its_sources() -> None:
    split = random_split([(2, 9), (8, 1), (5, 5)])
    assert [rows.tolist() for rows in decode_batches(split, 12)] == [[1], [2, 0]]


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
