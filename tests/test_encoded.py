"""Encoded splits: all pairs within the limit, cached once, and built again where anything is damaged."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from data.corpus import Pairs
from data.encoded import encode_split
from data.vocabulary import VocabularyPair, build_pair

TRAIN = Pairs(
    ("a b c", "d", "e f g h i j", "k l", "a d e k"),
    ("A B", "C D E", "F G", "H I J K L M N", "A"),
)


@pytest.fixture(scope="module")
def words() -> VocabularyPair:
    return build_pair(TRAIN, kind="words", size=100, joint=False)


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
