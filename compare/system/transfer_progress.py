"""Show how downloads go: a bar a file on a terminal, a line every ten seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE_EVERY_S = 10.0
MB = 1e6

Show = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes there are, and the bytes there will be where that is known."""


@contextmanager
def transfers(*, quiet: bool = False) -> Iterator[Show]:
    """Yields what to call as bytes come in."""
    if quiet:
        yield lambda name, done, total: None
    elif sys.stderr.isatty():
        with _bars() as show:
            yield show
    else:
        yield Lines(time.monotonic)


@contextmanager
def _bars() -> Iterator[Show]:
    """A bar for each file, with size, speed and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        tasks = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield show


class Lines:
    """Plain lines, for a file that takes longer than ``LINE_EVERY_S``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Print a line, if the last one is old enough."""
        if self._clock() - self._last >= LINE_EVERY_S:
            self._last = self._clock()
            of = f" of {total / MB:,.1f}" if total else ""
            print(f"{name}: {done / MB:,.1f}{of} MB", file=sys.stderr, flush=True)
