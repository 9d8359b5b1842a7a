"""A split as ids: flat arrays with offsets, in memory or mapped from files."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
MAX_RESIDENT_BYTES = 1 << 28
"""Size of a split's files, in bytes, up to which ``release_pages`` leaves them in this process's memory."""


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


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The N pairs of a split as ids, without BOS and EOS; over-long pairs are left out."""

    src: Sequences
    """Ids of the sources."""
    tgt: Sequences
    """Ids of the targets."""
    rows: Ints
    """Index in the corpus's split of each pair, (N,); it has gaps where pairs were left out."""
    dropped: int
    """Number of pairs that were left out."""
    memory_maps: tuple[mmap.mmap, ...] = ()
    """The mapped files that hold the arrays; empty if they are in memory."""
    folder: Path | None = None
    """The folder of these files; None if the arrays are in memory."""
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
        nothing = Sequences(self.src.flat[:0], np.zeros(len(self) + 1, dtype=np.int64))
        return replace(self, src=nothing, content_hash=f"{self.content_hash} without sources")

    def release_pages(self) -> None:
        """Release the mapped pages of a large split from this process, but not from the system's cache.

        They are mapped again when they are read. Without this an epoch over ten million pairs held
        a gigabyte.
        """
        if sum(map(len, self.memory_maps)) > MAX_RESIDENT_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            for memory_map in self.memory_maps:
                memory_map.madvise(mmap.MADV_DONTNEED)
