"""Text that stays on disk, so that a training set may be larger than memory."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import overload

from data.text.files import ensure_states, file_states
from data.text.lines import hash_texts, iter_blocks


class TextFile(Sequence[str]):
    """Sequence of the lines of a file, which are read from disk by each iteration.

    The constructor reads the file once to check, count and hash its lines. Only one block of lines is in
    memory at a time. An index or a slice reads the file up to its end, so prefer to iterate.

    Args:
        path: the file; see ``iter_lines`` for the supported kinds.

    Raises:
        FileNotFoundError: see ``iter_lines``.
        ValueError: see ``iter_lines``; also while reading, if the file has changed since it was counted.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._states = path, 0, file_states(path)
        self.sha256 = hash_texts(self._count_lines())
        """The hash of the lines by ``hash_texts``."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        with ensure_states(self._states):
            yield from chain.from_iterable(iter_blocks(self.path))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            numbers = range(len(self))[index]
            if not numbers:
                return ()
            ascending = numbers if numbers.step > 0 else numbers[::-1]
            lines = tuple(islice(self, ascending.start, ascending.stop, ascending.step))
            return lines if numbers.step > 0 else lines[::-1]
        return next(islice(self, range(len(self))[index], None))

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` has the same lines, on disk or in memory."""
        if not isinstance(other, TextFile | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # the file may change

    def _count_lines(self) -> Iterator[str]:
        for line in self:
            self._size += 1
            yield line


def hash_lines(lines: Sequence[str]) -> str:
    """Compute the hash of ``lines`` by ``hash_texts``, or return that of a ``TextFile``."""
    return lines.sha256 if isinstance(lines, TextFile) else hash_texts(lines)
