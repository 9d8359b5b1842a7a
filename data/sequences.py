"""Sequences of ids, laid end to end in one array."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
