"""A text that stays on disk, so that a training set may be larger than memory."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

from data.text.files import as_before, file_states
from data.text.lines import hash_texts, iter_lines


class TextFile(Sequence[str]):
    """The lines of a file: read once to check, count and hash them, and again by each iteration.

    Only the line at hand is held. An index or a slice reads up to its end, so iterate where you can.

    Raises:
        FileNotFoundError: see ``iter_lines``.
        ValueError: see ``iter_lines``, or the file is no longer the one that was counted.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._states = path, 0, file_states(path)
        self.sha256 = hash_texts(self._counted())
        """What ``hash_texts`` makes of the lines."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        with as_before(self._states):
            for _, line in iter_lines(self.path):
                yield line

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(len(self))))
        return next(islice(self, range(len(self))[index], None))

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` has the same lines, on disk or in memory."""
        if not isinstance(other, TextFile | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # the file may change

    def _counted(self) -> Iterator[str]:
        for line in self:
            self._size += 1
            yield line


def hash_lines(lines: Sequence[str]) -> str:
    """What ``hash_texts`` makes of ``lines``; of a ``TextFile`` it is known already."""
    return lines.sha256 if isinstance(lines, TextFile) else hash_texts(lines)
