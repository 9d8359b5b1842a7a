"""Encoded splits: all pairs within the limit, cached once, rebuilt if damaged; and worker processes."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from functools import partial
from operator import add, truediv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import encode
from data import workers as pool
from data.batches import BatchStream
from data.corpus import Pairs, open_pairs
from data.encode import Sequences, WordCache, describe_unknown, encode_split, ensure_lengths
from data.files import json_bytes
from data.vocabulary import VocabularyPair, build_pair, build_vocabulary
from data.workers import map_blocks, worker_count
from tests.kits.common import ROOT
from tests.kits.texts import ids_of, made_up

TRAIN = Pairs(("a b c", "d", "e f g h i j", "k l", "a d e k"), ("A B", "C D E", "F G", "H I J K L M N", "A"))


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
    with pytest.raises(ValueError, match=r"max_tokens \(1\) drops all 5 pairs; the shortest has 3 tokens"):
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


@pytest.mark.parametrize("name", ["src_ids", "src_lengths", "tgt_ids", "rows", "manifest.json"])
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


@pytest.mark.parametrize(("kind", "workers"), [("words", 1), ("characters", 1), ("bpe", 2), ("unigram", 2)])
def test_chunks_and_processes_change_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, workers: int
) -> None:
    src, tgt = (tuple(side) for side in zip(*made_up(120), strict=True))
    pairs = Pairs((*src, "a  b", "PPP pufff"), (*tgt, " x", "▁"))
    vocabularies = build_pair(pairs, kind=kind, size=310 if kind in ("bpe", "unigram") else 30, joint=False)
    split = encode_split(pairs, vocabularies, folder=tmp_path / "whole", max_tokens=40)
    (whole,) = (tmp_path / "whole").iterdir()
    for chunk, number in ((25, workers), (1, 1), (61, 1)):
        monkeypatch.setattr(encode, "CHUNK_PAIRS", chunk)
        encode_split(pairs, vocabularies, folder=tmp_path / "parts", max_tokens=40, workers=number)
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
        assert isinstance(side.flat, np.memmap)
        assert np.array_equal(side.lengths, other.lengths)
        for indices in (shuffled, np.arange(300), np.array([3, 4, 5, 4, 9, 8, 8, 299]), shuffled[:0]):
            assert all(map(np.array_equal, side.take(indices), other.take(indices)))
    streams = [BatchStream(split, batch_tokens=64, seed=1) for split in (stored, loaded)]
    assert streams[0].stream_hash() == streams[1].stream_hash()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 20 chunks to 80, the peak memory of Python and NumPy grows by few bytes per pair of 250."""
    monkeypatch.setattr(encode, "CHUNK_PAIRS", 500)
    monkeypatch.setattr(encode, "MAX_RESIDENT_BYTES", 0)
    monkeypatch.setattr("data.text.BUFFER", 1 << 14)
    peaks = []
    for size in (10_000, 40_000):
        folder = tmp_path / str(size)
        folder.mkdir()
        for side in ("a", "b"):
            lines = (5 * f"{side} word {n % 97} and {n % 89} more " + "\n" for n in range(size))
            (folder / f"train.{side}").write_text("".join(lines))
        tracemalloc.start()
        pairs = open_pairs(folder / "train.a", folder / "train.b")
        vocabularies = build_pair(pairs, kind="words", size=300, joint=True)
        encode_split(pairs, vocabularies, folder=folder, max_tokens=50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 64 * 30_000


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
    kind: build_vocabulary(kind, BOTH_SIDES, size=size)
    for kind, size in (("words", 20), ("characters", 20), ("bpe", 330), ("unigram", 310))
}
ODD = ["", " ", "  a", "a  b ", "\t", "a\u00a0b", "▁", "␛0 ▁x", "Öß ẞ", "𝕏 😀", "a-b, c!", "<unk> <0x0A>"]
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


def test_words_beyond_a_number_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_WORDS", 3)
    cache, lines = WordCache(VOCABULARIES["bpe"]), ["a b a", "b c", "d"]
    assert ids_of(cache.encode(lines)) == [VOCABULARIES["bpe"].encode(line) for line in lines]
    assert list(cache) == ["a", "b", "c"]


def test_workers_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """As users have a ``random.py`` there: a new process would take it for Python's."""
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "mine.py"
    script.write_text("from data.workers import map_blocks\nprint(*map_blocks(abs, [-1, 2], workers=2))\n")
    for name in ("pickle", "random", "socket", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('executed')\n")
    command, environment = [sys.executable, str(script)], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 2\n", "")


PID = "__import__('os').getpid()"
"""For ``eval``: a worker need not import this file, and with it torch, to tell its process."""


def children(pid: int) -> set[int]:
    """The workers of a process (Linux), without multiprocessing's resource tracker."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in pids if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_results_come_in_order_and_blocks_are_read_late(workers: int, count: int) -> None:
    read = []

    def blocks() -> Iterator[int]:
        for number in range(count):
            read.append(number)
            yield number

    results = []
    for result in map_blocks(partial(add, 10), blocks(), workers=workers):
        results.append(result)
        assert len(read) <= len(results) + workers
    assert results == list(range(10, 10 + count))


def test_only_a_large_corpus_starts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "available_cores", lambda: 2)
    monkeypatch.setattr(pool, "SERIAL_BLOCKS", 3)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "ProcessPoolExecutor", None)  # calling it would fail
        assert list(map_blocks(eval, [PID] * 3)) == [os.getpid()] * 3
    assert os.getpid() not in list(map_blocks(eval, [PID] * 5))[3:]
    monkeypatch.setattr(pool, "available_cores", lambda: 12)
    for processes, workers in (("1", 8), ("4", 3), ("16", 1)):  # processes of torchrun share the cores
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert worker_count() == workers


@pytest.mark.parametrize("where", ["function", "blocks"])
def test_an_error_is_raised_here_and_ends_the_workers(where: str) -> None:
    def blocks() -> Iterator[int]:
        yield from [1, 2, 0, 4, 5, 6] if where == "function" else [1, 2, 3]
        raise ValueError("line 7")

    with pytest.raises(ZeroDivisionError if where == "function" else ValueError):
        list(map_blocks(partial(truediv, 1), blocks(), workers=2))
    if sys.platform == "linux":
        assert not children(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_worker_that_was_killed_is_one_clear_error() -> None:
    results = map_blocks(eval, [PID] * 99, workers=2)
    os.kill(next(results), signal.SIGKILL)
    with pytest.raises(ChildProcessError, match=r"a worker process was killed; if memory is"):
        list(results)


PROGRAM = """
from data.workers import map_blocks
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
list(map_blocks(time.sleep, iter([0.1] * 10_000), workers=2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(signum: int, tmp_path: Path) -> None:
    """Also from a script without ``if __name__ == "__main__"``, as multiprocessing would need it."""
    (tmp_path / "script.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        while len(workers := children(parent.pid)) < 2:
            assert parent.poll() is None
            time.sleep(0.01)
        time.sleep(0.5)  # they import
        parent.send_signal(signum)
        errors = parent.stderr.read()  # ends when the workers have ended too
    assert errors.count("Traceback") == (signum == signal.SIGINT)  # that of the parent's KeyboardInterrupt
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.parametrize("kind", ["words", "unigram", "characters"])
def test_a_text_in_another_script_is_unknown_to_any_vocabulary(kind: str):
    lines = [src for src, _ in made_up(200)]
    vocabulary = build_vocabulary(kind, lines, size=300)
    assert describe_unknown(lines, vocabulary.encode_all(lines), vocabulary, "test, en") == []
    other = [*lines[:150], *["Это другой текст"] * 50]
    (message,) = describe_unknown(other, vocabulary.encode_all(other), vocabulary, "test, en")
    assert message.startswith("test, en: ")
    assert "in 50 of 200 lines, are not in the vocabulary, such as Это, другой, текст:" in message


def test_a_line_that_is_too_long_is_named():
    ensure_lengths([[1] * 10] * 2, "the source text", 10)
    with pytest.raises(
        ValueError, match=r"the source text, line 2 has 11 tokens, above the limit of 10 .* one sentence"
    ):
        ensure_lengths([[1], [1] * 11], "the source text", 10)
