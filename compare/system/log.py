"""Log messages and progress: to standard error for the command line, to log.txt for a run."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

from data.files import ProgressCallback, append_whole
from data.text import visible

# The library itself only sends messages to the loggers ``compare`` and ``data``; a program that imports it
# sees them if it configures ``logging``.


PACKAGES = ("compare", "data")
"""Packages of this project that send log messages."""


class _Formatter(logging.Formatter):
    """Formatter of messages as one line without control characters; warnings begin with "warning: "."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        prefix = "warning: " if record.levelno == logging.WARNING else ""
        record.message = prefix + visible(record.message)
        return super().formatMessage(record)


class _StderrHandler(logging.Handler):
    """Prints messages to standard error; while a progress bar is shown, rich puts them above the bar.

    The stream is looked up at each message, since rich replaces ``sys.stderr`` for the time of a bar. Once
    its reader has gone or its disk is full, messages are discarded: no work ends for that.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except OSError:
            discard(sys.stderr)


class _FileHandler(logging.Handler):
    """Appends messages to a file; an error, such as a full disk, ends the program as anywhere else."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self.setFormatter(_Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        append_whole(self._path, f"{self.format(record)}\n")


def discard(stream: TextIO) -> None:
    """Let a standard stream lead nowhere, so that Python's flush at exit does not fail either."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


_STDERR = _StderrHandler()
_STDERR.setFormatter(_Formatter("%(message)s"))


def show_messages(*, quiet: bool = False) -> None:
    """Print messages from INFO on to standard error until ``hide_messages``; if ``quiet``, errors alone."""
    _STDERR.setLevel(logging.ERROR if quiet else logging.INFO)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # warns of a home folder that it cannot write
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.addHandler(_STDERR)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # whatever another package does to the root logger, each line appears once


def hide_messages() -> None:
    """Undo ``show_messages``."""
    for name in PACKAGES:
        logger = logging.getLogger(name)
        if _STDERR in logger.handlers:
            logger.removeHandler(_STDERR)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append all messages of a block from INFO on to ``path``, with the time; they go elsewhere as before."""
    loggers = [logging.getLogger(name) for name in PACKAGES]
    handler, levels = _FileHandler(path), [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


# Progress of long work: a bar on a terminal, log messages elsewhere.


logger = logging.getLogger(__name__)

T = TypeVar("T")
MetricsCallback = Callable[[dict[str, Any]], None]
"""Called with each update of a training, {"kind": "update", "update": 7}, and each line of its metrics."""
ShowMetrics = Callable[[str, int, dict[str, Any]], None]
"""Called with the name of a training, its maximal updates, and what ``MetricsCallback`` gets, first {}."""
Unit = Literal["updates", "pairs", "sentences", "runs", "parts", "MB"]

INTERVAL_S = 20.0
"""Seconds without a message about a piece of work after which there is one, where there is no bar."""
DELAY_S = 1.0
"""Seconds after which work gets a bar; training has one from its first update on."""
REFRESH_S = 0.1
MB = 1e6


class _Bars:
    """Bars on standard error; text printed there meanwhile appears above them.

    They are drawn when they move, by no thread of their own, which would disturb what is timed. All that are
    shown at a time share one display.
    """

    def __init__(self) -> None:
        self._users, self._drawn = 0, 0.0
        self._tasks: dict[str, Any] = {}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show bars in a block."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        if not self._users:
            texts = [
                TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("count", "left", "note")
            ]
            name = TextColumn("{task.description}", markup=False)  # a label may hold [brackets]
            console = Console(stderr=True)
            self._display = Progress(name, BarColumn(10), *texts, console=console, auto_refresh=False)
            self._display.start()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._display.stop()
                self._tasks.clear()

    def move(self, name: str, done: float, total: float | None, **texts: Any) -> None:
        """Move the bar ``name``, which begins with its first call, and set its texts: count, left, note."""
        if name not in self._tasks:
            self._tasks[name] = self._display.add_task(visible(name), total=total, count="", left="", note="")
        self._display.update(self._tasks[name], completed=done, total=total, **texts)
        if time.monotonic() - self._drawn >= REFRESH_S:
            self._display.refresh()
            self._drawn = time.monotonic()

    def remove(self, name: str) -> None:
        """Remove the bar ``name``, if there is one."""
        if name in self._tasks:
            self._display.remove_task(self._tasks.pop(name))
            self._display.refresh()


_BARS = _Bars()


def _has_bars() -> bool:
    """Return whether progress is shown as bars: messages are printed, and standard error is a terminal."""
    printed = _STDERR in logging.getLogger(PACKAGES[0]).handlers and _STDERR.level == logging.INFO
    return printed and sys.stderr.isatty()


@contextmanager
def counting(unit: Unit) -> Iterator[ProgressCallback]:
    """Show work of one or more named parts; yields the function that takes their names and numbers.

    Args:
        unit: what is counted; of "MB" the function takes bytes.
    """
    begun = called = said = time.monotonic()
    current, has_bars = "", _has_bars()

    def show(name: str, done: int, total: int | None) -> None:
        nonlocal begun, called, said, current
        now = time.monotonic()
        if name != current:  # a part begins where the one before has ended
            _BARS.remove(current)
            begun, current = called, name
        called = now
        numbers = [done, total] if total is not None else [done]
        texts = [f"{number / MB:,.1f}" if unit == "MB" else f"{number:,}" for number in numbers]
        count = f"{' of '.join(texts)} {unit}"
        seconds = (now - begun) * (total - done) / done if total and done else 0.0
        left = f"{format_duration(seconds)} left" if seconds else ""
        if has_bars and now - begun >= DELAY_S:
            _BARS.move(name, done, total, count=count, left=left)
        elif not has_bars and now - said >= INTERVAL_S:
            said = now
            logger.info(f"{name}: {count}" + (f", about {left}" if left else ""))
        if done == total:
            _BARS.remove(name)

    with _BARS.shown() if has_bars else nullcontext():
        try:
            yield show
        finally:
            _BARS.remove(current)


def track(items: Iterable[T], name: str, unit: Unit = "parts", total: int | None = None) -> Iterator[T]:
    """Yield each of ``items`` and show how many are done.

    Args:
        items: what to yield.
        name: of the work.
        unit: what is counted.
        total: number of items, where ``items`` has no length.
    """
    total = len(items) if isinstance(items, Sized) else total
    with counting(unit) as progress:
        for done, item in enumerate(items):
            progress(name, done, total)
            yield item


class Reporter:
    """Progress of training: one bar per run and one of all if standard error is a terminal, else messages."""

    def __init__(self) -> None:
        self.expect({})

    def expect(
        self, runs: Mapping[str, tuple[int, int, float]], after: float = 0.0, after_s: float = 0.0
    ) -> None:
        """Announce the training runs that follow; their share and the time left are then shown.

        Args:
            runs: first and last update and the work per update, in any unit, by name of the run.
            after: work that follows the last run, in the same unit.
            after_s: seconds that follow in addition, however fast the machine is.
        """
        self._runs, self._after, self._after_s = dict(runs), after, after_s
        self._left = {name: (last - first) * work for name, (first, last, work) in runs.items()}
        self._total, self._done, self._start = sum(self._left.values()), 0.0, time.monotonic()
        self._updates: dict[str, int] = {}
        self._said = self._start

    @contextmanager
    def training(self, name: str, max_updates: int) -> Iterator[MetricsCallback]:
        """Show a training run and the test of its weights; yields the function that takes its metrics.

        Args:
            name: its name, as in ``expect``.
            max_updates: its updates.
        """
        with self.trainings() as show:
            show(name, max_updates, {})
            try:
                yield partial(show, name, max_updates)
            finally:  # also where it failed
                self._left[name] = 0.0

    @contextmanager
    def trainings(self) -> Iterator[ShowMetrics]:
        """Show several training runs at once, one bar each; yields the function that takes their metrics."""
        if not _has_bars():
            yield self._log
            return
        with _BARS.shown():

            def show(name: str, max_updates: int, line: dict[str, Any]) -> None:
                self._count(name, line)
                kind, update, note = line.get("kind"), line.get("update", 0), {}
                if kind == "train":
                    note["note"] = f"loss {line['loss']:.2f}, {line['tokens_per_s'] / 1e3:,.1f}k tok/s"
                elif kind in ("valid", "final"):
                    self._log(name, max_updates, line)
                _BARS.move(name, update, max_updates, count=f"{update:,} of {max_updates:,}", **note)
                if len(self._runs) > 1 and name in self._runs:
                    share = 100 * self._share
                    _BARS.move(self._all, share, 100, count=f"{share:.0f}%", left=self._time_left)

            yield show
            _BARS.remove(self._all)

    def _log(self, name: str, max_updates: int, line: dict[str, Any]) -> None:
        """Log one line of metrics, if it is of a kind that people want to see or none was for a while."""
        self._count(name, line)
        kind = line.get("kind")
        if kind == "valid":
            bleu = "" if line["bleu"] is None else f", BLEU {line['bleu']:.2f}"  # language models have none
            text = f", {line['seconds']:.0f} s: validation loss {line['loss']:.3f}{bleu}"
        elif kind == "final":
            text = f": keeps {line['chosen']}"
        elif kind in ("train", "update") and time.monotonic() - self._said >= INTERVAL_S:
            text = ""
        else:
            return
        self._said = time.monotonic()
        if name in self._runs and not _has_bars():
            of = f" of {self._all}" if len(self._runs) > 1 else ""
            text += f"; {self._share:.0%}{of}" + (f", about {self._time_left}" if self._time_left else "")
        logger.info(f"{name}: update {line['update']:,} of {max_updates:,}{text}")

    def _count(self, name: str, line: Mapping[str, Any]) -> None:
        """Count the updates up to a line; those of an earlier call take none of the time."""
        if name not in self._runs or not line:
            return
        _, updates, work = self._runs[name]
        new = {"train": line.get("updates", 0), "update": 1}.get(line["kind"], 0)
        self._done += work * max(0, line["update"] - self._updates.get(name, line["update"] - new))
        self._updates[name] = line["update"]
        self._left[name] = 0.0 if line["kind"] == "final" else work * max(0, updates - line["update"])

    @property
    def _all(self) -> str:
        return f"all {len(self._runs)} runs"

    @property
    def _share(self) -> float:
        """Share of the training of all runs that is done."""
        return 1 - sum(self._left.values()) / self._total if self._total else 1.0

    @property
    def _time_left(self) -> str:
        """Time of the work that is left, at the speed so far, tests included; "" where unknown."""
        seconds = (time.monotonic() - self._start) * (sum(self._left.values()) + self._after)
        if not (seconds and self._done):
            return ""
        return f"{format_duration(seconds / self._done + self._after_s)} left"


def format_duration(seconds: float) -> str:
    """Format a time as "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:,.1f} h"
