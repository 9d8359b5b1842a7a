"""The callback by which long work reports its progress; who displays it is up to the caller."""

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the name of the work, the units done so far, and their final number (None: unknown)."""

PAIRS_PER_CALL = 10_000
"""Sentence pairs between two calls."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Do nothing: the ``ProgressCallback`` for work without a display."""
