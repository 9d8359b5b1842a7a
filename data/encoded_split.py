"""A split as ids: two flat arrays with offsets, which may lie in files."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
KEPT_MAPPED = 1 << 28
"""Bytes of a split up to which its pages stay in this process's memory once they were read."""


class Sequences(NamedTuple):
    """Sequences of ids laid end to end; number i is ``flat[offsets[i] : offsets[i + 1]]``."""

    flat: Ints
    offsets: Ints

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Sequences":
        """Lay ``sequences`` end to end."""
        offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in sequences], out=offsets[1:])
        flat = np.fromiter(chain.from_iterable(sequences), dtype=np.int32, count=int(offsets[-1]))
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
    maps: tuple[mmap.mmap, ...] = ()
    """The files' pages in which all of it lies, where it is not in memory."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def src_lengths(self) -> Ints:
        """Source ids of each pair, EOS not counted."""
        return self.src.lengths.astype(np.int32)

    @cached_property
    def tgt_lengths(self) -> Ints:
        """Target ids of each pair, BOS and EOS not counted."""
        return self.tgt.lengths.astype(np.int32)

    def let_go(self) -> None:
        """Take the pages of a large split out of this process, though not out of the system's cache.

        They come back where they are read. Else an epoch over ten million pairs came to hold a gigabyte.
        """
        if sum(map(len, self.maps)) > KEPT_MAPPED and hasattr(mmap, "MADV_DONTNEED"):
            for pages in self.maps:
                pages.madvise(mmap.MADV_DONTNEED)
