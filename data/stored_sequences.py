"""Sequences of ids that stay in a file, for splits too large for memory."""

import os
import sys
import weakref
from pathlib import Path

import numpy as np

from data.sequences import Ints, Sequences


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
