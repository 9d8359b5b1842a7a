"""Encoded splits: ids in memory or in files, cached in a folder named by text and vocabularies."""

import hashlib
import os
import shutil
import sys
import weakref
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
from data.files import hash_file, json_bytes, new_folder, parse_json, read_bytes
from data.parallel import map_blocks
from data.symbols import Vocabulary
from data.text import hash_texts
from data.vocabulary import VocabularyPair

# Sequences of ids, laid end to end in one array.


Ints = NDArray[np.integer[Any]]


class Sequences(NamedTuple):
    """N sequences of ids laid end to end; sequence i is ``flat[offsets[i] : offsets[i + 1]]``."""

    flat: Ints
    """All ids, (total length,)."""
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
        """The number of ids per sequence, (N,)."""
        return np.diff(self.offsets)

    def joined(self, other: "Sequences") -> "Sequences":
        """Return the sequences of ``self``, then those of ``other``."""
        offsets = np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]])
        return Sequences(np.concatenate([self.flat, other.flat]), offsets)

    def take(self, indices: Ints) -> "Sequences":
        """Copy the sequences at ``indices``, in that order."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        shift = np.repeat(starts - offsets[:-1], lengths)
        return Sequences(self.flat[shift + np.arange(offsets[-1])], offsets)


# Sequences of ids that stay in a file, for splits too large for memory.


class StoredSequences:
    """N sequences laid end to end in a file: ``Sequences``, but that ids are read when they are asked for.

    The file stays open, so that it may be removed meanwhile. It is read, not mapped: a page that is hit at
    random and must not stay in memory costs a fault, which took 6 of 7 seconds of an epoch's batches.
    """

    def __init__(self, path: Path, dtype: str, offsets: Ints) -> None:
        """Open a file.

        Args:
            path: the file, the ids of all sequences.
            dtype: numpy type of an id, such as "<u2".
            offsets: start of each sequence, then the total length, (N + 1,).

        Raises:
            OSError: the file cannot be read.
        """
        self.offsets = offsets
        self._dtype = np.dtype(dtype)
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._descriptor)

    @property
    def lengths(self) -> Ints:
        """The number of ids per sequence, (N,)."""
        return np.diff(self.offsets)

    def take(self, indices: Ints) -> Sequences:
        """Read the sequences at ``indices``, in that order; neighbours in the file are read at once.

        Raises:
            OSError: the file ends early.
        """
        starts, ends = self.offsets[indices], self.offsets[indices + 1]
        offsets = np.concatenate([[0], np.cumsum(ends - starts)])
        first = np.flatnonzero(starts != np.append(-1, ends[:-1]))  # of each run of neighbours
        counts = np.diff(offsets[np.append(first, len(starts))])
        size = self._dtype.itemsize
        content = b"".join(map(self._read, (counts * size).tolist(), (starts[first] * size).tolist()))
        if len(content) != offsets[-1] * size:
            raise OSError(f"{self._path}: the file has become shorter since it was opened")
        return Sequences(np.frombuffer(content, dtype=self._dtype), offsets)

    def _read(self, count: int, start: int) -> bytes:
        """Read ``count`` bytes from a position; with ``os.pread`` also while other processes read."""
        if sys.platform == "win32":
            os.lseek(self._descriptor, start, os.SEEK_SET)
            return os.read(self._descriptor, count)
        return os.pread(self._descriptor, count, start)


# A split as ids, in memory or, of a large corpus, in files.


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The N pairs of a split as ids, without BOS and EOS; over-long pairs are left out."""

    src: Sequences | StoredSequences
    """Ids of the sources."""
    tgt: Sequences | StoredSequences
    """Ids of the targets."""
    rows: Ints
    """Index in the corpus's split of each pair, (N,); it has gaps where pairs were left out."""
    dropped: int
    """Number of pairs that were left out."""
    folder: Path | None = None
    """The folder of the files; None if the split was never in files."""
    content_hash: str = ""
    """The sha256 over the hashes of these files."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def src_lengths(self) -> Ints:
        """Source ids per pair, EOS not counted, (N,)."""
        return self.src.lengths.astype(np.int32)

    @cached_property
    def tgt_lengths(self) -> Ints:
        """Target ids per pair, BOS and EOS not counted, (N,)."""
        return self.tgt.lengths.astype(np.int32)

    def without_sources(self) -> "EncodedSplit":
        """Return the same pairs with empty sources, for models of the target alone."""
        nothing = Sequences(np.zeros(0, dtype=np.int32), np.zeros(len(self) + 1, dtype=np.int64))
        return replace(self, src=nothing, content_hash=f"{self.content_hash} without sources")


# Encoding of many lines from the ids of their words, each of which is encoded once.
#
# Most words of a text are repeated ones. A line whose words do not depend on their neighbours is put together
# from their ids in NumPy, without an object per token; the other lines are encoded whole.


MAX_WORDS = 400_000
"""Words that stay in a cache: the first ones, among which are the frequent ones; about 80 MB."""
LINE_END = 0
"""Number that stands for the end of a line."""


class WordCache:
    """Ids of the words of one vocabulary; it fills while lines are encoded.

    Args:
        vocabulary: the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._numbers = _Numbers({"\n": LINE_END})
        self._ids = Sequences.of([[]])  # of each word, by its number
        self._needs_line = np.zeros(1, dtype=np.bool_)  # by number of the word

    def __reduce__(self) -> tuple[type["WordCache"], tuple[Vocabulary]]:
        """Copy to another process without the words."""
        return WordCache, (self._vocabulary,)

    def encode(self, lines: Sequence[str]) -> Sequences:
        """Encode lines as ``Vocabulary.encode`` does.

        Args:
            lines: the text, without line ends.
        """
        text = "\n".join(lines)
        has_line_feed = text.count("\n") != len(lines) - 1  # in a line, as a text in memory may have it
        if has_line_feed or not self._vocabulary.encodes_words:
            return Sequences.of(self._vocabulary.encode_all(lines))
        words = self._find(text)
        line = np.cumsum(words == LINE_END)  # that of each word; a line end belongs to the line after it
        is_whole = np.zeros(len(lines), dtype=np.bool_)
        is_whole[line[self._needs_line[words]]] = True
        whole = Sequences.of(self._vocabulary.encode_all(list(compress(lines, is_whole.tolist()))))
        # A line that is encoded whole becomes one word, with a number after those of the cache.
        kept = (words != LINE_END) & ~is_whole[line]
        first = is_whole[line] & (np.diff(line, prepend=-1) > 0)
        words[first] = len(self._needs_line) + np.arange(len(whole.lengths))
        kept |= first
        ids = self._ids.joined(whole).take(words[kept])
        self._trim()
        return Sequences(ids.flat, ids.offsets[np.searchsorted(line[kept], np.arange(len(lines) + 1))])

    def _find(self, text: str) -> Ints:
        """Return the numbers of the words and line ends of ``text``; new words are added to the cache."""
        words = text.replace("\n", " \n ").split(" ")
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        if new := list(islice(self._numbers, len(self._needs_line), None)):
            ids = self._vocabulary.encode_words(new)
            self._ids = self._ids.joined(Sequences.of([each or [] for each in ids]))
            self._needs_line = np.append(self._needs_line, [each is None for each in ids])
        return numbers

    def _trim(self) -> None:
        """Forget the last words beyond ``MAX_WORDS``."""
        while len(self._numbers) > MAX_WORDS:
            self._numbers.popitem()
        size = len(self._numbers)
        self._ids = Sequences(self._ids.flat[: self._ids.offsets[size]], self._ids.offsets[: size + 1])
        self._needs_line = self._needs_line[:size]


class _Numbers(dict[str, int]):
    """Numbers of words, in order of their first occurrence."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


# Encode a split into files, cached in a folder named by a hash of text and vocabularies, and open them.


FORMAT_VERSION = 2
"""Part of the cache's hash: increase it when the files of the same text change."""

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1_000_000
"""Size that no manifest reaches."""
MAX_RESIDENT_BYTES = 1 << 28
"""Size of the ids of one side, in bytes, up to which they are in memory."""
CHUNK_PAIRS = 10_000
"""Number of pairs that are in memory at a time, as text and as ids."""


def encode_split(
    pairs: Pairs,
    vocabularies: VocabularyPair,
    *,
    folder: str | Path,
    max_tokens: int | None = None,
    workers: int | None = None,
) -> EncodedSplit:
    """Encode the pairs of a split, or open the cache of an earlier call for the same text and vocabularies.

    A cache is used only if the sha256 of every file is as recorded; otherwise it is built again. The files do
    not depend on the number of processes.

    Args:
        pairs: the text; only ``CHUNK_PAIRS`` pairs are in memory at a time.
        vocabularies: vocabularies of source and target.
        folder: folder of the caches; each cache is a folder in it.
        max_tokens: leave out pairs with more ids than this on either side, EOS not counted; None keeps all.
        workers: number of processes that encode; None: one per core for a large split. See ``map_blocks``.

    Returns:
        The encoded split; ids of more than ``MAX_RESIDENT_BYTES`` stay in the files of the cache.

    Raises:
        ValueError: no pair is left, or the text changed while it was read.
        OSError: ``folder`` cannot be written.
    """
    if len(pairs.src) != len(pairs.tgt):
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
        encoded = _open(cache)
    if encoded is None:
        raise OSError(f"{cache}: what was just written cannot be read back; is the disk full or failing?")
    return encoded


def open_split(folder: Path) -> EncodedSplit:
    """Open a split in the files that another process has written.

    Args:
        folder: ``folder`` of the split there.

    Raises:
        OSError: a file is missing, or its content is not what was written.
    """
    encoded = _open(folder)
    if encoded is None:
        raise OSError(f"{folder}: no encoded split: all processes must see the same folders and files")
    return encoded


def _encode(
    pairs: Pairs, vocabularies: VocabularyPair, max_tokens: int | None, folder: Path, workers: int | None
) -> None:
    """Write the arrays and a manifest with their hashes; over-long pairs are left out."""
    id_type = "<u2" if max(map(len, vocabularies)) <= 1 << 16 else "<i4"
    limit, shortest = np.inf if max_tokens is None else max_tokens, np.inf
    with ExitStack() as stack:
        sides = tuple(_SequencesWriter(folder, name, id_type, stack) for name in ("src", "tgt"))
        rows = _ArrayWriter(folder / "rows", "<i8", stack)
        pairs_read = 0
        chunks = zip(_chunks(pairs.src), _chunks(pairs.tgt), strict=True)
        for encoded in map_blocks(_ChunkEncoder(vocabularies, id_type), chunks, workers=workers):
            longest = np.maximum(*(sequences.lengths for sequences in encoded))
            indices = np.flatnonzero(longest <= limit)
            for side, sequences in zip(sides, encoded, strict=True):
                side.add(sequences if len(indices) == len(longest) else sequences.take(indices))
            rows.add(indices + pairs_read)
            pairs_read, shortest = pairs_read + len(longest), min(shortest, longest.min())
    if not rows.size:
        raise ValueError(
            f"max_tokens ({max_tokens}) leaves none of {pairs_read} pairs; "
            f"the shortest has {shortest} ids on its longer side"
        )
    arrays = [rows, *(array for side in sides for array in (side.ids, side.offsets))]
    manifest = {
        "pairs": rows.size,
        "dropped": pairs_read - rows.size,
        "src_tokens": sides[0].ids.size,
        "tgt_tokens": sides[1].ids.size,
        "arrays": {
            array.path.name: {"type": array.type, "sha256": array.digest.hexdigest()} for array in arrays
        },
    }
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
    """Divide ``lines`` into tuples of at most ``CHUNK_PAIRS``."""
    remaining = iter(lines)
    while chunk := tuple(islice(remaining, CHUNK_PAIRS)):
        yield chunk


class _ArrayWriter:
    """Writer of one array to a file, piece by piece; ``type`` is the numpy type of its elements."""

    def __init__(self, path: Path, type_: str, stack: ExitStack) -> None:
        self.path, self.type, self.size, self.digest = path, type_, 0, hashlib.sha256()
        self._file = stack.enter_context(path.open("xb"))

    def add(self, values: Ints) -> None:
        content = values.astype(self.type).tobytes()
        self.size += len(values)
        self.digest.update(content)
        self._file.write(content)


class _SequencesWriter:
    """Writer of the sequences of one side to two files, ids and offsets."""

    def __init__(self, folder: Path, name: str, id_type: str, stack: ExitStack) -> None:
        self.ids = _ArrayWriter(folder / f"{name}_ids", id_type, stack)
        self.offsets = _ArrayWriter(folder / f"{name}_offsets", "<i8", stack)
        self.offsets.add(np.zeros(1, dtype=np.int64))

    def add(self, sequences: Sequences) -> None:
        self.offsets.add(sequences.offsets[1:] + self.ids.size)
        self.ids.add(sequences.flat)


def _open(cache: Path) -> EncodedSplit | None:
    """Open a cache; None if a file is missing or its hash is not as recorded."""
    try:
        manifest = parse_json(read_bytes(cache / MANIFEST, max_bytes=MAX_MANIFEST_BYTES))
        arrays = manifest["arrays"]
        if any(hash_file(cache / name) != array["sha256"] for name, array in arrays.items()):
            return None
        types = {name: array["type"] for name, array in arrays.items()}
        return EncodedSplit(
            src=_open_sequences(cache, "src", types),
            tgt=_open_sequences(cache, "tgt", types),
            rows=np.fromfile(cache / "rows", dtype=types["rows"]),
            dropped=int(manifest["dropped"]),
            folder=cache,
            content_hash=hash_texts(array["sha256"] for array in arrays.values()),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _open_sequences(cache: Path, side: str, types: dict[str, str]) -> Sequences | StoredSequences:
    """Read the sequences of one side, or leave their ids in the file if they are many."""
    ids, offsets = f"{side}_ids", np.fromfile(cache / f"{side}_offsets", dtype=types[f"{side}_offsets"])
    if (cache / ids).stat().st_size > MAX_RESIDENT_BYTES:
        return StoredSequences(cache / ids, types[ids], offsets)
    return Sequences(np.fromfile(cache / ids, dtype=types[ids]), offsets)
