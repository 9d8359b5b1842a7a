"""Encode a split into files, cached in a folder named by a hash of text and vocabularies, and open them."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from data.corpus import Pairs
from data.encoded_split import EncodedSplit
from data.parallel import map_blocks
from data.sequences import Ints, Sequences
from data.stored_sequences import StoredSequences
from data.text.files import hash_file, json_bytes, parse_json, read_bytes
from data.text.lines import hash_texts
from data.text.new_folder import new_folder
from data.vocabulary import VocabularyPair
from data.word_cache import WordCache

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
