"""A split as ids: two flat memory-mapped arrays with offsets, cached on disk under a content hash."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.corpus import Pairs
from data.files import json_bytes, parse_json, write_atomically
from data.lines import hash_texts
from data.vocabulary import VocabularyPair

FORMAT = 1
"""Part of the content hash: raise it when the same text comes to be stored in another way."""

MANIFEST = "manifest.json"
ARRAYS = ("src_ids", "src_offsets", "tgt_ids", "tgt_offsets", "rows")

Ints = NDArray[np.int64]


class Sequences(NamedTuple):
    """Sequences of ids laid end to end; number i is ``flat[offsets[i] : offsets[i + 1]]``."""

    flat: NDArray[np.int32]
    offsets: Ints

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Sequences":
        """Lay ``sequences`` end to end."""
        offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in sequences], out=offsets[1:])
        flat = np.fromiter((i for ids in sequences for i in ids), dtype=np.int32, count=int(offsets[-1]))
        return cls(flat, offsets)

    @property
    def lengths(self) -> Ints:
        """The number of ids of each sequence."""
        return np.diff(self.offsets)

    def take(self, rows: Ints) -> "Sequences":
        """The sequences ``rows``, in that order."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        shift = np.repeat(starts - offsets[:-1], lengths)
        return Sequences(self.flat[shift + np.arange(offsets[-1])], offsets)


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The pairs of a split as ids, without BOS and EOS; over-long pairs are left out."""

    src: Sequences
    tgt: Sequences
    rows: Ints
    """The number in the corpus' split of each pair kept."""
    dropped: int
    """How many pairs were left out."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def src_lengths(self) -> Ints:
        """Source ids of each pair, EOS not counted."""
        return self.src.lengths

    @cached_property
    def tgt_lengths(self) -> Ints:
        """Target ids of each pair, BOS and EOS not counted."""
        return self.tgt.lengths


def encode_split(
    pairs: Pairs, vocabularies: VocabularyPair, *, folder: Path, max_tokens: int | None
) -> EncodedSplit:
    """Encode ``pairs``, or open what an earlier call left in ``folder`` for the same text and vocabularies.

    Pairs of which one side has more than ``max_tokens`` ids are left out; None keeps all. What is cached
    under ``folder`` is used only if every byte of it is as written; anything else is built again.
    """
    texts = [str(FORMAT), vocabularies.content_hash, str(max_tokens), *pairs.texts()]
    place = folder / hash_texts(texts)[:32]
    cached = _open(place)
    if cached is None:
        _write(place, _encode(pairs, vocabularies, max_tokens))
        cached = _open(place)
    if cached is None:
        raise OSError(f"{place}: what was just written cannot be read back; is the disk full or failing?")
    return cached


def _encode(pairs: Pairs, vocabularies: VocabularyPair, max_tokens: int | None) -> EncodedSplit:
    """Encode in memory and leave out the over-long pairs."""
    src = Sequences.of(vocabularies.src.encode_all(pairs.src))
    tgt = Sequences.of(vocabularies.tgt.encode_all(pairs.tgt))
    longest = np.maximum(src.lengths, tgt.lengths)
    rows = np.flatnonzero(longest <= (longest.max(initial=0) if max_tokens is None else max_tokens))
    if not len(rows):
        raise ValueError(
            f"max_tokens ({max_tokens}) leaves none of {len(pairs.src)} pairs; "
            f"the shortest has {min(longest, default=0)} ids on its longer side"
        )
    return EncodedSplit(src=src.take(rows), tgt=tgt.take(rows), rows=rows, dropped=len(pairs.src) - len(rows))


def _write(place: Path, split: EncodedSplit) -> None:
    """Write the arrays, then the manifest that vouches for them."""
    arrays: tuple[NDArray[Any], ...] = (*split.src, *split.tgt, split.rows)
    sha256 = {}
    for name, array in zip(ARRAYS, arrays, strict=True):
        content = io.BytesIO()
        np.save(content, array, allow_pickle=False)
        write_atomically(place / f"{name}.npy", content.getvalue())
        sha256[name] = hashlib.sha256(content.getbuffer()).hexdigest()
    counts = {
        "pairs": len(split),
        "dropped": split.dropped,
        "src_tokens": len(split.src.flat),
        "tgt_tokens": len(split.tgt.flat),
    }
    write_atomically(place / MANIFEST, json_bytes({**counts, "sha256": sha256}))


def _open(place: Path) -> EncodedSplit | None:
    """Map the arrays in ``place``; None where one is missing or not as written."""
    try:
        manifest = parse_json((place / MANIFEST).read_bytes())
        arrays = {}
        for name in ARRAYS:
            path = place / f"{name}.npy"
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != manifest["sha256"][name]:
                    return None
            arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        dropped = int(manifest["dropped"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return EncodedSplit(
        src=Sequences(arrays["src_ids"], arrays["src_offsets"]),
        tgt=Sequences(arrays["tgt_ids"], arrays["tgt_offsets"]),
        rows=arrays["rows"],
        dropped=dropped,
    )
