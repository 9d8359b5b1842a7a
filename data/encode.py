"""Encode a split chunk by chunk into a folder named by its content, and map what lies there."""

import hashlib
import mmap
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from data.corpus import Pairs
from data.download.digests import file_digest
from data.encoded_split import EncodedSplit, Ints, Sequences
from data.text.files import json_bytes, parse_json
from data.text.lines import hash_texts
from data.text.new_folder import new_folder
from data.vocabulary import VocabularyPair

FORMAT = 2
"""Part of the content hash: raise it when the same text comes to be stored in another way."""

MANIFEST = "manifest.json"
CHUNK = 10_000
"""Pairs that are in memory at a time, as text and as ids."""


def encode_split(
    pairs: Pairs, vocabularies: VocabularyPair, *, folder: Path, max_tokens: int | None
) -> EncodedSplit:
    """Encode ``pairs``, or open what an earlier call left in ``folder`` for the same text and vocabularies.

    Pairs of which one side has more than ``max_tokens`` ids are left out; None keeps all. What is cached
    under ``folder`` is used only if every byte of it is as written; anything else is built again.

    Raises:
        ValueError: no pair is left, or the text changed while it was read.
        OSError: ``folder`` cannot be written.
    """
    what = (str(FORMAT), vocabularies.content_hash, str(max_tokens), *pairs.hashes())
    place = folder / hash_texts(what)[:32]
    cached = _open(place)
    if cached is None:
        if place.exists():
            shutil.rmtree(place)  # damaged
        try:
            with new_folder(place) as made:
                _encode(pairs, vocabularies, max_tokens, made)
        except OSError:
            if not place.exists():
                raise  # else another run was sooner
        cached = _open(place)
    if cached is None:
        raise OSError(f"{place}: what was just written cannot be read back; is the disk full or failing?")
    return cached


def _encode(pairs: Pairs, vocabularies: VocabularyPair, max_tokens: int | None, folder: Path) -> None:
    """Write the arrays, and the manifest that vouches for them; over-long pairs are left out."""
    ids = "<u2" if max(map(len, vocabularies)) <= 1 << 16 else "<i4"
    limit, shortest = np.inf if max_tokens is None else max_tokens, np.inf
    with ExitStack() as stack:
        sides = tuple(_Side(folder, name, ids, stack) for name in ("src", "tgt"))
        rows = _Column(folder / "rows", "<i8", stack)
        read = 0
        for chunk in zip(_chunks(pairs.src), _chunks(pairs.tgt), strict=True):
            found = [
                Sequences.of(vocabulary.encode_all(lines))
                for vocabulary, lines in zip(vocabularies, chunk, strict=True)
            ]
            longest = np.maximum(*(sequences.lengths for sequences in found))
            kept = np.flatnonzero(longest <= limit)
            for side, sequences in zip(sides, found, strict=True):
                side.add(sequences.take(kept))
            rows.add(kept + read)
            read, shortest = read + len(longest), min(shortest, longest.min())
    if not rows.size:
        raise ValueError(
            f"max_tokens ({max_tokens}) leaves none of {read} pairs; "
            f"the shortest has {shortest} ids on its longer side"
        )
    columns = [rows, *(column for side in sides for column in (side.ids, side.offsets))]
    manifest = {
        "pairs": rows.size,
        "dropped": read - rows.size,
        "src_tokens": sides[0].ids.size,
        "tgt_tokens": sides[1].ids.size,
        "arrays": {
            column.path.name: {"type": column.type, "sha256": column.digest.hexdigest()} for column in columns
        },
    }
    (folder / MANIFEST).write_bytes(json_bytes(manifest))


def _chunks(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """``lines``, so many at a time."""
    left = iter(lines)
    while chunk := tuple(islice(left, CHUNK)):
        yield chunk


class _Column:
    """An array of a numpy type that grows in a file."""

    def __init__(self, path: Path, kind: str, stack: ExitStack) -> None:
        self.path, self.type, self.size, self.digest = path, kind, 0, hashlib.sha256()
        self._file = stack.enter_context(path.open("xb"))

    def add(self, values: Ints) -> None:
        content = values.astype(self.type).tobytes()
        self.size += len(values)
        self.digest.update(content)
        self._file.write(content)


class _Side:
    """The sequences of a side, which grow in two files."""

    def __init__(self, folder: Path, name: str, ids: str, stack: ExitStack) -> None:
        self.ids = _Column(folder / f"{name}_ids", ids, stack)
        self.offsets = _Column(folder / f"{name}_offsets", "<i8", stack)
        self.offsets.add(np.zeros(1, dtype=np.int64))

    def add(self, sequences: Sequences) -> None:
        self.offsets.add(sequences.offsets[1:] + self.ids.size)
        self.ids.add(sequences.flat)


def _open(place: Path) -> EncodedSplit | None:
    """Map the arrays in ``place``; None where one is missing or not as written."""
    arrays, maps = {}, []
    try:
        manifest = parse_json((place / MANIFEST).read_bytes())
        for name, array in manifest["arrays"].items():
            path = place / name
            if file_digest(path) != array["sha256"]:
                return None
            with path.open("rb") as file:
                maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            arrays[name] = np.frombuffer(maps[-1], dtype=array["type"])
        return EncodedSplit(
            src=Sequences(arrays["src_ids"], arrays["src_offsets"]),
            tgt=Sequences(arrays["tgt_ids"], arrays["tgt_offsets"]),
            rows=arrays["rows"],
            dropped=int(manifest["dropped"]),
            maps=tuple(maps),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
