"""Encoded splits: ids in memory or in files, cached in a folder named by text and vocabularies."""

import json
import shutil
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.corpus import Pairs
from data.files import hash_file, json_bytes, new_folder
from data.text import hash_texts
from data.vocabulary import Vocabulary, VocabularyPair
from data.workers import map_blocks

# Sequences of ids, laid end to end in one array.


Ints = NDArray[np.integer[Any]]


class Sequences(NamedTuple):
    """N sequences of ids laid end to end; sequence i is ``flat[offsets[i] : offsets[i + 1]]``."""

    flat: Ints
    offsets: Ints
    """Start of each sequence, then the total length, (N + 1,)."""

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Sequences":
        """Lay ``sequences`` end to end."""
        offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in sequences], out=offsets[1:])
        flat = np.fromiter(chain.from_iterable(sequences), dtype=np.int32, count=int(offsets[-1]))
        return cls(flat, offsets)

    @property
    def lengths(self) -> Ints:
        """Ids per sequence, (N,)."""
        return np.diff(self.offsets)

    @classmethod
    def concatenate(cls, parts: "Sequence[Sequences]") -> "Sequences":
        """Lay the sequences of all parts end to end."""
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))])
        return cls(np.concatenate([part.flat for part in parts]), offsets)

    def take(self, indices: Ints) -> "Sequences":
        """Copy the sequences at ``indices``, in that order."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        shift = np.repeat(starts - offsets[:-1], lengths)
        return Sequences(self.flat[shift + np.arange(offsets[-1])], offsets)


# A split as ids, in memory or, if it is large, in files.


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The N pairs of a split as ids, without BOS and EOS; over-long pairs are left out."""

    src: Sequences
    tgt: Sequences
    rows: Ints
    """Index in the corpus's split of each pair, (N,); it has gaps where pairs were left out."""
    dropped: int
    folder: Path | None = None
    """Folder of the cache; None if there is none."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def src_lengths(self) -> Ints:
        """Source ids per pair without EOS, (N,)."""
        return self.src.lengths.astype(np.int32)

    @cached_property
    def tgt_lengths(self) -> Ints:
        """Target ids per pair without BOS and EOS, (N,)."""
        return self.tgt.lengths.astype(np.int32)

    def without_sources(self) -> "EncodedSplit":
        """Return the same pairs with empty sources, for models of the target alone."""
        nothing = Sequences(np.zeros(0, dtype=np.int32), np.zeros(len(self) + 1, dtype=np.int64))
        return replace(self, src=nothing)


# Encoding of many lines from the ids of their words, because most words of a text are repeated.


MAX_WORDS = 400_000
"""Words that stay in a cache: the first ones, among which are the frequent ones; about 60 MB."""
ID = "i"
"""Type of an id in Python's arrays and NumPy's: C's int, of 4 bytes."""


class WordCache(dict[str, bytes]):
    """Ids of the words of one vocabulary, as the bytes of an array; it fills while lines are encoded."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __reduce__(self) -> tuple[type["WordCache"], tuple[Vocabulary]]:
        """Copy to another process without the words."""
        return WordCache, (self._vocabulary,)

    def __missing__(self, word: str) -> bytes:
        if not word:
            raise KeyError(word)
        ids = self._encode_whole(word)
        if len(self) < MAX_WORDS:
            self[word] = ids
        return ids

    def _encode_whole(self, text: str) -> bytes:
        return array(ID, self._vocabulary.encode(text)).tobytes()

    def encode(self, lines: Sequence[str]) -> Sequences:
        """Encode lines as ``Vocabulary.encode`` does."""
        if not self._vocabulary.encodes_words:
            return Sequences.of(self._vocabulary.encode_all(lines))
        encoded = list(map(self._encode_line, lines))
        offsets = np.cumsum([0, *map(len, encoded)]) // array(ID).itemsize
        return Sequences(np.frombuffer(b"".join(encoded), dtype=ID), offsets)

    def _encode_line(self, line: str) -> bytes:
        try:
            return b"".join(map(self.__getitem__, line.split(" ")))
        except KeyError:  # two spaces in a row, or one at an end
            return self._encode_whole(line)


# Encode a split into files, cached in a folder named by a hash of text and vocabularies, and open them.


FORMAT_VERSION = 3
"""Part of the cache's hash: increase it when the files of the same text change."""

MANIFEST = "manifest.json"
SIDES = ("src", "tgt")
ARRAYS = ("rows", *(f"{side}_{content}" for side in SIDES for content in ("lengths", "ids")))
ROW_TYPE, LENGTH_TYPE = "<i8", "<i4"
MAX_RESIDENT_BYTES = 1 << 28
"""Bytes of one side's ids, above which they stay on disk."""
CHUNK_PAIRS = 10_000
"""Pairs in memory at a time, as text and as ids."""


def encode_split(
    pairs: Pairs,
    vocabularies: VocabularyPair,
    *,
    folder: str | Path,
    max_tokens: int | None = None,
    workers: int | None = None,
) -> EncodedSplit:
    """Encode the pairs of a split, or open the cache of an earlier call for the same text and vocabularies.

    The sha256 of every file is checked. The files do not depend on the number of ``workers``; see
    ``map_blocks``.

    Args:
        pairs: the text; only ``CHUNK_PAIRS`` pairs are in memory at a time.
        vocabularies: vocabularies of source and target.
        folder: parent of the cache folders.
        max_tokens: leave out pairs with more ids than this on either side, EOS not counted; None keeps all.
        workers: number of processes; None: one per core for a large split.

    Raises:
        ValueError: no pair is left, or the text changed while it was read.
    """
    if len(pairs.src) != len(pairs.tgt):  # NumPy would broadcast a single target
        raise ValueError(
            f"{len(pairs.src):,} sources but {len(pairs.tgt):,} targets: line i of one must translate line i "
            "of the other"
        )
    key = (str(FORMAT_VERSION), vocabularies.content_hash, str(max_tokens), *pairs.column_hashes())
    cache = Path(folder) / hash_texts(key)[:32]
    encoded = _open(cache)
    if encoded is None:
        if cache.exists():
            shutil.rmtree(cache)  # damaged
        try:
            with new_folder(cache) as temporary:
                _encode(pairs, vocabularies, max_tokens, temporary, workers)
        except OSError:
            if not cache.exists():
                raise  # otherwise another run has written it in the meantime
    return encoded or open_split(cache)


def open_split(folder: Path) -> EncodedSplit:
    """Open a split that another process wrote to ``folder``; OSError if it is missing or damaged."""
    encoded = _open(folder)
    if encoded is None:
        raise OSError(f"{folder}: the encoded split is missing; all processes need the same file system")
    return encoded


def _encode(
    pairs: Pairs, vocabularies: VocabularyPair, max_tokens: int | None, folder: Path, workers: int | None
) -> None:
    id_type = "<u2" if max(map(len, vocabularies)) <= 1 << 16 else "<i4"
    limit, shortest, num_read, num_written = np.inf if max_tokens is None else max_tokens, np.inf, 0, 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("xb")) for name in ARRAYS}
        chunks = zip(_chunks(pairs.src), _chunks(pairs.tgt), strict=True)
        for encoded in map_blocks(_ChunkEncoder(vocabularies, id_type), chunks, workers=workers):
            longest = np.maximum(*(sequences.lengths for sequences in encoded))
            indices = np.flatnonzero(longest <= limit)
            files["rows"].write((indices + num_read).astype(ROW_TYPE).tobytes())
            for side, sequences in zip(SIDES, encoded, strict=True):
                taken = sequences.take(indices)
                files[f"{side}_lengths"].write(taken.lengths.astype(LENGTH_TYPE).tobytes())
                files[f"{side}_ids"].write(taken.flat.tobytes())
            num_read, num_written = num_read + len(longest), num_written + len(indices)
            shortest = min(shortest, longest.min())
    if not num_written:
        raise ValueError(
            f"max_tokens ({max_tokens}) drops all {num_read} pairs; "
            f"the shortest has {shortest} tokens on its longer side"
        )
    hashes = {name: hash_file(folder / name) for name in ARRAYS}
    manifest = {"dropped": num_read - num_written, "ids": id_type, "sha256": hashes}
    (folder / MANIFEST).write_bytes(json_bytes(manifest))


class _ChunkEncoder:
    """Encoding of the two sides of a chunk."""

    def __init__(self, vocabularies: VocabularyPair, id_type: str) -> None:
        src = WordCache(vocabularies.src)
        self._caches = src, src if vocabularies.joint else WordCache(vocabularies.tgt)
        self._type = id_type

    def __call__(self, chunk: tuple[tuple[str, ...], tuple[str, ...]]) -> list[Sequences]:
        encoded = [cache.encode(lines) for cache, lines in zip(self._caches, chunk, strict=True)]
        return [Sequences(sequences.flat.astype(self._type), sequences.offsets) for sequences in encoded]


def _chunks(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    remaining = iter(lines)
    while chunk := tuple(islice(remaining, CHUNK_PAIRS)):
        yield chunk


def _open(cache: Path) -> EncodedSplit | None:
    """Open a cache; None if it is missing or damaged."""
    try:
        manifest = json.loads((cache / MANIFEST).read_bytes())
        if {name: hash_file(cache / name) for name in ARRAYS} != manifest["sha256"]:
            return None
        src, tgt = (_open_sequences(cache, side, manifest["ids"]) for side in SIDES)
        rows = np.fromfile(cache / "rows", dtype=ROW_TYPE)
        return EncodedSplit(src=src, tgt=tgt, rows=rows, dropped=int(manifest["dropped"]), folder=cache)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _open_sequences(cache: Path, side: str, id_type: str) -> Sequences:
    path, lengths = cache / f"{side}_ids", np.fromfile(cache / f"{side}_lengths", dtype=LENGTH_TYPE)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if path.stat().st_size > MAX_RESIDENT_BYTES:
        return Sequences(np.memmap(path, dtype=id_type, mode="r"), offsets)
    return Sequences(np.fromfile(path, dtype=id_type), offsets)


# Texts that a model reads: unknown tokens, and lengths.


UNKNOWN_SHARE = 0.02
"""Share of unknown tokens above which there is a warning."""
MAX_TOKENS = 10_000
"""Tokens of the longest sentence that a model reads: memory of attention grows with their square."""


UNKNOWN_WORDS = 5
"""Unknown words that a warning names."""


def describe_unknown(
    lines: Sequence[str], ids: Sequence[Sequence[int]], vocabulary: Vocabulary, name: str
) -> list[str]:
    """Say what share of a text its vocabulary does not know, where it is notable, and name some words."""
    unknown = [sum(index < vocabulary.first_token for index in line) for line in ids]
    share = sum(unknown) / max(sum(map(len, ids)), 1)
    if share <= UNKNOWN_SHARE:
        return []
    count = sum(map(bool, unknown))
    words = chain.from_iterable(line.split() for line in compress(lines, unknown))
    strange = (
        word for word in words if any(index < vocabulary.first_token for index in vocabulary.encode(word))
    )
    examples = ", ".join(f"{word:.30}" for word in dict.fromkeys(islice(strange, UNKNOWN_WORDS)))
    return [
        f"{name}: {share:.1%} of the tokens, in {count:,} of {len(ids):,} lines, are not in the vocabulary, "
        f"such as {examples}: is this the training language? Subwords or a larger vocabulary.size cover more "
        "words"
    ]


def ensure_lengths(ids: Sequence[Sequence[int]], name: str, limit: int = MAX_TOKENS) -> None:
    """Raise ValueError, with the number of the line, if a sentence has more than ``limit`` tokens."""
    for number, line in enumerate(ids, start=1):
        if len(line) > limit:
            raise ValueError(
                f"{name}, line {number} has {len(line):,} tokens, above the limit of {limit:,} (memory grows "
                "with their square): write one sentence per line"
            )
