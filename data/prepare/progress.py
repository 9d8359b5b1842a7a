"""How work on long files tells how far it is, without knowing who listens."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Tick = Callable[[int], None]
"""Told how many pairs are done, every ``EVERY`` pairs."""
Progress = Callable[[str, int | None], AbstractContextManager[Tick]]
"""Begins a stretch of work: what it is, and how many pairs it has where that is known."""

EVERY = 10_000


@contextmanager
def silent(_label: str, _total: int | None) -> Iterator[Tick]:
    """The ``Progress`` that nobody sees."""
    yield lambda _: None
