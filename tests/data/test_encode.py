"""Encoded splits: all pairs within the limit, cached once, and built again if anything is damaged."""

import os
import pickle
import shutil
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import encode
from data.batches import BatchStream
from data.corpus import Pairs, open_pairs
from data.encode import Sequences, StoredSequences, WordCache, encode_split
from data.files import json_bytes
from data.symbols import Vocabulary
from data.vocabulary import VocabularyPair, build_pair, build_vocabulary
from tests.kits.raw_data import made_up

TRAIN = Pairs(
    ("a b c", "d", "e f g h i j", "k l", "a d e k"),
    ("A B", "C D E", "F G", "H I J K L M N", "A"),
)


def ids_of(sequences: Sequences) -> list[list[int]]:
    return [sequences.flat[start:end].tolist() for start, end in pairwise(sequences.offsets)]


@pytest.fixture(scope="module")
def words() -> VocabularyPair:
    return build_pair(TRAIN, kind="words", size=100, joint=False)


def test_encoding_keeps_all_pairs_within_the_limit(words: VocabularyPair, tmp_path: Path) -> None:
    unlimited = encode_split(TRAIN, words, folder=tmp_path)
    assert (len(unlimited), unlimited.dropped) == (5, 0)
    assert unlimited.src_lengths.tolist() == [3, 1, 6, 2, 4]
    assert unlimited.tgt_lengths.tolist() == [2, 3, 2, 7, 1]
    limited = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert (limited.rows.tolist(), limited.dropped) == ([0, 1, 4], 2)
    for side, vocabulary, lines in zip((limited.src, limited.tgt), words, TRAIN[:2], strict=True):
        assert isinstance(side, Sequences)
        assert side.flat.dtype == np.uint16  # ids of a small vocabulary
        assert list(map(vocabulary.decode, ids_of(side))) == [lines[row] for row in limited.rows]
    with pytest.raises(ValueError, match=r"max_tokens \(1\) leaves none of 5 pairs; the shortest has 3 ids"):
        encode_split(TRAIN, words, folder=tmp_path, max_tokens=1)
    with pytest.raises(ValueError, match=r"^3 sources but 2 targets"):
        encode_split(Pairs(("a", "b", "c"), ("A", "B")), words, folder=tmp_path)
    assert len(os.listdir(tmp_path)) == 2


def test_the_second_call_encodes_nothing(
    words: VocabularyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But another text, vocabulary or limit is another cache."""
    first = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    with monkeypatch.context() as patch:
        patch.setattr(encode, "_encode", None)
        second = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    arrays = [(*split.src, *split.tgt, split.rows, split.dropped) for split in (first, second)]
    for mine, theirs in zip(*arrays, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    letters = build_pair(TRAIN, kind="characters", size=100, joint=False)
    other = Pairs((*TRAIN.src[:-1], "a d e l"), TRAIN.tgt)
    moved = Pairs(("a b c d", *TRAIN.src[1:]), TRAIN.tgt)
    for pairs, vocabularies in ((TRAIN, words), (TRAIN, letters), (other, words), (moved, words)):
        encode_split(pairs, vocabularies, folder=tmp_path)
    assert len(os.listdir(tmp_path)) == 5


@pytest.mark.parametrize(
    "name", ["src_ids", "src_offsets", "tgt_ids", "tgt_offsets", "rows", "manifest.json"]
)
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_cache_is_built_again(
    words: VocabularyPair, tmp_path: Path, name: str, damage: str
) -> None:
    encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    (path,) = tmp_path.glob(f"*/{name}")
    whole = path.read_bytes()
    path.unlink()
    if damage != "remove":
        path.write_bytes(whole[:-1] if damage == "cut" else whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:])
    split = encode_split(TRAIN, words, folder=tmp_path, max_tokens=4)
    assert split.src_lengths.tolist() == [3, 1, 4]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("kind", ["words", "characters", "bpe", "unigram"])
def test_chunks_and_processes_change_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    src, tgt = (tuple(side) for side in zip(*made_up(120), strict=True))
    pairs = Pairs((*src, "a  b", "PPP pufff"), (*tgt, " x", "▁"))
    vocabularies = build_pair(pairs, kind=kind, size=310 if kind in ("bpe", "unigram") else 30, joint=False)
    split = encode_split(pairs, vocabularies, folder=tmp_path / "whole", max_tokens=40)
    (whole,) = (tmp_path / "whole").iterdir()
    for chunk, workers in ((25, 2), (1, 1), (61, 1)):
        monkeypatch.setattr(encode, "CHUNK_PAIRS", chunk)
        encode_split(pairs, vocabularies, folder=tmp_path / "parts", max_tokens=40, workers=workers)
        for path in whole.iterdir():
            assert path.read_bytes() == (tmp_path / "parts" / whole.name / path.name).read_bytes()
        shutil.rmtree(tmp_path / "parts")
    for side, vocabulary, lines in zip((split.src, split.tgt), vocabularies, pairs[:2], strict=True):
        assert isinstance(side, Sequences)
        assert ids_of(side) == [vocabulary.encode(lines[row]) for row in split.rows]


def test_ids_of_a_large_vocabulary_are_whole(tmp_path: Path) -> None:
    many = tuple(f"w{number}" for number in range(70_000))
    vocabularies = build_pair(Pairs(many, many), kind="words", size=100_000, joint=True)
    split = encode_split(Pairs(many, many), vocabularies, folder=tmp_path)
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
    os.truncate(path, 18)
    with pytest.raises(OSError, match="ids: the file has become shorter since it was opened"):
        stored.take(np.array([2]))
    path.unlink()
    assert stored.take(np.array([0])).flat.tolist() == [0, 1, 2, 3]


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
            lines = (f"{side} word {n % 97} and {n % 89} more\n" for n in range(size))
            (folder / f"train.{side}").write_text("".join(lines))
        tracemalloc.start()
        pairs = open_pairs(folder / "train.a", folder / "train.b")
        vocabularies = build_pair(pairs, kind="words", size=300, joint=True)
        encode_split(pairs, vocabularies, folder=folder, max_tokens=50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("moment", ["first chunk", "before the manifest", "rename"])
def test_an_interrupted_run_leaves_nothing_and_the_next_one_starts_over(
    words: VocabularyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    functions = {
        "first chunk": (WordCache, "encode"),
        "before the manifest": (encode, "json_bytes"),
        "rename": (os, "rename"),
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


BOTH_SIDES = [text for pair in made_up(200) for text in pair]
VOCABULARIES = {
    kind: build_vocabulary(kind, BOTH_SIDES, size=size, seed=1)
    for kind, size in (("words", 20), ("characters", 20), ("bpe", 330), ("unigram", 310))
}
ODD = [
    *(
        "",
        " ",
        "  a",
        "a  b ",
        "\t",
        "a\u00a0b",
        "▁",
        "␛0 ▁x",
        "Öß ẞ",
        "𝕏 😀",
        "a-b, c!",
        "<unk> <0x0A>",
        "\r",
    )
]
"""Lines with what is special to one of the tokenisers."""
LINES = st.lists(
    st.one_of(
        st.sampled_from([*ODD, *BOTH_SIDES[:20]]),
        st.text("ab ▁␛.-,\u00a0'’é\t ", max_size=12),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),  # SentencePiece takes UTF-8 alone
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", VOCABULARIES)
@given(blocks=st.lists(LINES, max_size=4))
@settings(deadline=None, max_examples=60)
def test_encoding_by_words_gives_the_ids_of_lines(kind: str, blocks: list[list[str]]) -> None:
    vocabulary = VOCABULARIES[kind]
    cache = WordCache(vocabulary)
    for lines in blocks:
        assert ids_of(cache.encode(lines)) == [vocabulary.encode(line) for line in lines]
    copied = pickle.loads(pickle.dumps(cache))  # for another process
    assert len(copied) == 0
    assert ids_of(copied.encode(ODD)) == [vocabulary.encode(line) for line in ODD]


def test_each_word_is_encoded_once_up_to_a_number_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, encoded = VOCABULARIES["bpe"], list[str]()
    encode_line = type(vocabulary).encode

    def counting(self: Vocabulary, text: str) -> list[int]:
        encoded.append(text)
        return encode_line(self, text)

    monkeypatch.setattr(type(vocabulary), "encode", counting)
    monkeypatch.setattr(encode, "MAX_WORDS", 3)
    cache = WordCache(vocabulary)
    for _ in range(2):
        cache.encode(["a b a", "b c", "d"])
    assert encoded == ["a", "b", "c", "d", "d"]
