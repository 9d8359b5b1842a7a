"""Encoded splits: all pairs within the limit, cached once, and built again if anything is damaged."""

import json
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data import encode
from data.batches import BatchStream
from data.corpus import Pairs, open_pairs
from data.encode import StoredSequences, encode_split
from data.files import json_bytes
from data.vocabulary import VocabularyPair, build_pair
from tests.kits.raw_data import made_up

TRAIN = Pairs(
    ("a b c", "d", "e f g h i j", "k l", "a d e k"),
    ("A B", "C D E", "F G", "H I J K L M N", "A"),
)


@pytest.fixture(scope="module")
def words() -> VocabularyPair:
    return build_pair(TRAIN, kind="words", size=100, joint=False)


def test_encoding_keeps_all_pairs_within_the_limit(words: VocabularyPair, tmp_path: Path) -> None:
    unlimited = encode_split(TRAIN, words, folder=tmp_path, max_tokens=None)
    assert (len(unlimited), unlimited.dropped) == (5, 0)
    assert unlimited.src_lengths.tolist() == [3, 1, 6, 2, 4]
    assert unlimited.tgt_lengths.tolist() == [2, 3, 2, 7, 1]
    limited = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert (len(limited), limited.dropped) == (3, 2)
    assert limited.rows.tolist() == [0, 1, 4]
    sides = ((limited.src, words.src, TRAIN.src), (limited.tgt, words.tgt, TRAIN.tgt))
    for i, row in enumerate(limited.rows):
        for side, vocabulary, lines in sides:
            ids = side.flat[side.offsets[i] : side.offsets[i + 1]]
            assert vocabulary.decode(ids.tolist()) == lines[row]
    with pytest.raises(ValueError, match=r"max_tokens \(1\) leaves none of 5 pairs; the shortest has 3 ids"):
        encode_split(TRAIN, words, folder=tmp_path, max_tokens=1)


@pytest.mark.parametrize("targets", [("A",), ("A", "B")])
def test_unequal_sides_are_refused(words: VocabularyPair, tmp_path: Path, targets: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=rf"^3 sources but {len(targets)} targets"):
        encode_split(Pairs(("a", "b", "c"), targets), words, folder=tmp_path, max_tokens=None)
    assert not list(tmp_path.iterdir())


def test_the_manifest_counts(words: VocabularyPair, tmp_path: Path) -> None:
    split = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert split.src.flat.dtype == np.uint16  # ids of a small vocabulary
    manifest = json.loads(next(tmp_path.glob("*/manifest.json")).read_bytes())
    assert {name: manifest[name] for name in ("pairs", "dropped", "src_tokens", "tgt_tokens")} == {
        "pairs": 3,
        "dropped": 2,
        "src_tokens": 8,
        "tgt_tokens": 6,
    }
    assert not list(tmp_path.rglob("*.tmp"))


class HashOnly:
    """A vocabulary pair with a hash but without ``encode_all``: encoding with it fails."""

    def __init__(self, pair: VocabularyPair) -> None:
        self.content_hash = pair.content_hash


def test_the_second_call_encodes_nothing(words: VocabularyPair, tmp_path: Path) -> None:
    first = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    second = encode_split(TRAIN, HashOnly(words), folder=tmp_path, max_tokens=4)  # type: ignore[arg-type]
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
    path = next(tmp_path.glob(f"*/{name}"))
    whole = path.read_bytes()
    path.unlink()
    if damage != "remove":
        flipped = whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:]
        path.write_bytes({"flip": flipped, "cut": whole[:-1], "grow": whole + b"\0"}[damage])
    split = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert split.src_lengths.tolist() == [3, 1, 4]
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"dropped":0,"arrays":{}}', b'{"arrays":null}', b"\xff"]
)
def test_a_damaged_manifest_is_built_again(words: VocabularyPair, tmp_path: Path, content: bytes) -> None:
    encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    path = next(tmp_path.glob("*/manifest.json"))
    whole = path.read_bytes()
    path.write_bytes(content)
    assert encode_split(TRAIN, words, folder=tmp_path, max_tokens=4).dropped == 2
    assert path.read_bytes() == whole


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 6])
def test_chunks_change_nothing(
    words: VocabularyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """A chunk may be smaller than the text, end with it, or hold over-long pairs only."""
    whole = encode_split(TRAIN, words, folder=tmp_path / "whole", max_tokens=4)
    monkeypatch.setattr(encode, "CHUNK_PAIRS", chunk)
    parts = encode_split(TRAIN, words, folder=tmp_path / "parts", max_tokens=4)
    for mine, theirs in zip((*parts.src, *parts.tgt), (*whole.src, *whole.tgt), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (parts.rows.tolist(), parts.dropped) == ([0, 1, 4], 2)
    with pytest.raises(ValueError, match=r"max_tokens \(1\) leaves none of 5 pairs; the shortest has 3 ids"):
        encode_split(TRAIN, words, folder=tmp_path / "parts", max_tokens=1)


@pytest.mark.parametrize("kind", ["words", "characters", "bpe", "unigram"])
@pytest.mark.parametrize("joint", [True, False])
def test_the_number_of_processes_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, joint: bool
) -> None:
    src, tgt = (tuple(side) for side in zip(*made_up(120), strict=True))
    pairs = Pairs((*src, "a  b", "PPP pufff"), (*tgt, " x", "▁"))
    size = 330 if kind in ("bpe", "unigram") else 30
    vocabularies = build_pair(pairs, kind=kind, size=size if joint else size - 20, joint=joint)
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 25)
    for workers in (1, 2):
        encode_split(pairs, vocabularies, folder=tmp_path / str(workers), max_tokens=40, workers=workers)
    (one,), (two,) = ((tmp_path / name).iterdir() for name in ("1", "2"))
    assert one.name == two.name
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
    split = encode_split(pairs, vocabularies, folder=tmp_path / "1", max_tokens=40)
    for side, vocabulary, lines in zip((split.src, split.tgt), vocabularies, pairs[:2], strict=True):
        expected = [vocabulary.encode(lines[row]) for row in split.rows]
        assert [side.flat[a:b].tolist() for a, b in pairwise(side.offsets)] == expected


def test_ids_of_a_large_vocabulary_are_whole(tmp_path: Path) -> None:
    many = tuple(f"w{number}" for number in range(70_000))
    pairs = Pairs(many, many)
    vocabularies = build_pair(pairs, kind="words", size=100_000, joint=True)
    split = encode_split(pairs, vocabularies, folder=tmp_path, max_tokens=None)
    assert int(split.src.flat.max()) == len(vocabularies.src) - 1 > 1 << 16
    assert len(set(split.src.flat.tolist())) == 70_000


def test_ids_that_stay_in_the_file_are_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = Pairs(*zip(*made_up(300), strict=True))
    vocabularies = build_pair(pairs, kind="words", size=100, joint=True)
    loaded = encode_split(pairs, vocabularies, folder=tmp_path)
    monkeypatch.setattr(encode, "MAX_RESIDENT_BYTES", 0)
    stored = encode_split(pairs, vocabularies, folder=tmp_path)
    shuffled = np.random.default_rng(1).permutation(300)
    for side, other in ((stored.src, loaded.src), (stored.tgt, loaded.tgt)):
        assert isinstance(side, StoredSequences)
        assert np.array_equal(side.lengths, other.lengths)
        for indices in (shuffled, np.arange(300), np.array([3, 4, 5, 4, 9, 8, 8, 299]), shuffled[:0]):
            assert all(map(np.array_equal, side.take(indices), other.take(indices)))
    streams = [BatchStream(split, batch_tokens=64, seed=1) for split in (stored, loaded)]
    assert streams[0].stream_hash() == streams[1].stream_hash()


def test_a_file_of_ids_may_be_removed_but_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_bytes(np.arange(10, dtype="<u2").tobytes())
    stored = StoredSequences(path, "<u2", np.array([0, 4, 4, 10]))
    assert stored.take(np.array([2, 0, 1])).flat.tolist() == [4, 5, 6, 7, 8, 9, 0, 1, 2, 3]
    os.truncate(path, 18)
    with pytest.raises(OSError, match="ids: the file has become shorter since it was opened"):
        stored.take(np.array([2]))
    path.unlink()
    assert stored.take(np.array([0])).flat.tolist() == [0, 1, 2, 3]
    descriptor = stored._descriptor
    del stored
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 20 chunks to 80, the peak memory of Python and NumPy grows by less than 20%."""
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 500)
    monkeypatch.setattr("data.text.BLOCK_BYTES", 1 << 14)
    peaks = []
    for size in (10_000, 40_000):
        folder = tmp_path / str(size)
        folder.mkdir()
        for side in ("a", "b"):
            (folder / f"train.{side}").write_text(
                "".join(f"{side} word {n % 97} and {n % 89} more\n" for n in range(size))
            )
        tracemalloc.start()
        pairs = open_pairs(folder / "train.a", folder / "train.b")
        vocabularies = build_pair(pairs, kind="words", size=300, joint=True)
        encode_split(pairs, vocabularies, folder=folder, max_tokens=50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("moment", ["first write", "before the manifest", "rename"])
def test_an_interrupted_run_leaves_nothing_and_the_next_one_starts_over(
    words: VocabularyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    functions = {
        "first write": (encode._ArrayWriter, "add"),
        "before the manifest": (encode, "json_bytes"),
        "rename": (os, "replace"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*functions[moment], interrupt)
        with pytest.raises(KeyboardInterrupt):
            encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert os.listdir(tmp_path) == []
    assert encode_split(TRAIN, words, folder=tmp_path, max_tokens=4).rows.tolist() == [0, 1, 4]


def test_of_two_concurrent_runs_the_later_uses_the_cache_of_the_first(
    words: VocabularyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_run_finishes_first(*args: Any) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(encode, "json_bytes", json_bytes)
            encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
        return json_bytes(*args)

    monkeypatch.setattr(encode, "json_bytes", other_run_finishes_first)
    assert encode_split(TRAIN, words, folder=tmp_path, max_tokens=4).rows.tolist() == [0, 1, 4]
    assert len(os.listdir(tmp_path)) == 1
