"""Log messages and progress: to standard error for the command line, to log.txt for a run."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from data.files import ProgressCallback, append_whole
from data.text import visible

# Output of log messages: to standard error for the command line, to log.txt for a run.
#
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

    The stream is looked up at each message, since rich replaces ``sys.stderr`` for the time of a bar.
    """

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


class _RootHandler(logging.Handler):
    """Hands messages on to the handlers of the root logger, from the level on that the program has chosen."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.root.handlers:
            logging.root.handle(record)


class _FileHandler(logging.Handler):
    """Appends messages to a file; an error, such as a full disk, ends the program as anywhere else."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self.setFormatter(_Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        append_whole(self._path, f"{self.format(record)}\n")


_STDERR = _StderrHandler()
_STDERR.setFormatter(_Formatter("%(message)s"))


def show_messages(*, quiet: bool = False) -> None:
    """Print all messages from INFO on to standard error until ``hide_messages``; nothing if ``quiet``."""
    for name in () if quiet else PACKAGES:
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
def no_messages(module: str) -> Iterator[None]:
    """Discard all messages that ``module`` logs in a block."""
    logger = logging.getLogger(module)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append all messages of a block from INFO on to ``path``, with the time; elsewhere they go as before."""
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    for logger in loggers:
        logger.addHandler(_FileHandler(path))
        if logger.propagate:
            logger.addHandler(_RootHandler(logger.getEffectiveLevel()))
        logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate, logger.handlers[:] = propagate, handlers


# Progress of long work: a bar on a terminal, log messages elsewhere.


logger = logging.getLogger(__name__)

MetricsCallback = Callable[[dict[str, Any]], None]
"""Called with each line of a training run's metrics."""
ShowMetrics = Callable[[str, int, dict[str, Any]], None]
"""Called with the name of a training run, its maximal updates, and each line of its metrics, at first {}."""
Unit = Literal["updates", "pairs", "bytes"]

INTERVAL_S = 10.0
"""Seconds between two messages about the same work, where there is no bar."""
MB = 1e6


class Reporter:
    """Display of progress: bars if standard error is a terminal, else log messages.

    Args:
        quiet: show no bars. Messages are logged all the same, for a run's log.txt needs them.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._has_bars = not quiet and sys.stderr.isatty()
        self.expect({})

    def expect(self, runs: Mapping[str, tuple[int, float]]) -> None:
        """Announce the training runs that follow; messages then tell their share and the time left.

        Args:
            runs: maximal updates and work per update, in any unit, by name of the run.
        """
        self._runs = dict(runs)
        self._left = {name: updates * work for name, (updates, work) in runs.items()}
        self._total, self._done, self._start = sum(self._left.values()), 0.0, time.monotonic()

    @contextmanager
    def training(self, name: str, max_updates: int) -> Iterator[MetricsCallback]:
        """Show a training run; yields the function that takes its metrics.

        Args:
            name: its name, as in ``expect``.
            max_updates: its updates.
        """
        with self.trainings() as show:
            show(name, max_updates, {})
            yield partial(show, name, max_updates)

    @contextmanager
    def trainings(self) -> Iterator[ShowMetrics]:
        """Show several training runs at once, one bar each; yields the function that takes their metrics."""
        if not self._has_bars:
            yield self._log
            return
        with _bars("updates") as bars:

            def show(name: str, max_updates: int, line: dict[str, Any]) -> None:
                if not line:
                    bars(name, 0, max_updates)
                elif line["kind"] == "train":
                    note = f"loss {line['loss']:.3f}  {line['tokens_per_s']:,.0f} tokens/s"
                    bars(name, line["update"], max_updates, note)
                    self._count(name, line)
                else:
                    self._log(name, max_updates, line)

            yield show

    @contextmanager
    def counting(self, unit: Literal["pairs", "bytes"]) -> Iterator[ProgressCallback]:
        """Show work on many sentence pairs, or downloads; yields the function that takes their numbers."""
        if self._has_bars:
            with _bars(unit) as bars:
                yield bars
        else:
            yield _messages(unit)

    def _log(self, name: str, max_updates: int, line: dict[str, Any]) -> None:
        """Log one line of metrics, if it is of a kind that people want to see."""
        kind = line.get("kind")
        if kind == "train":
            text = f"loss {line['loss']:.3f}, {line['tokens_per_s']:,.0f} tokens/s"
        elif kind in ("valid", "final"):
            bleu = "" if line["bleu"] is None else f", BLEU {line['bleu']:.2f}"  # language models have none
            text = f"validation loss {line['loss']:.3f}{bleu}"
            text = f"keeps {line['chosen']}, {text}" if kind == "final" else text
        else:
            return
        text = f"{name} {line['update']}/{max_updates} {line['seconds']:.0f} s: {text}"
        logger.info(f"{text}{self._count(name, line)}")

    def _count(self, name: str, line: Mapping[str, Any]) -> str:
        """Count a line of metrics; returns "; 25% of all 4 runs, about 3 min left", or "" where unknown.

        The time is that of the updates since ``expect``, whatever an earlier call has done.
        """
        if name not in self._runs:
            return ""
        updates, work = self._runs[name]
        if line["kind"] == "train":
            self._done += work * line["updates"]
        self._left[name] = 0.0 if line["kind"] == "final" else work * max(0, updates - line["update"])
        left = sum(self._left.values())
        of = f" of all {len(self._runs)} runs" if len(self._runs) > 1 else ""
        text = f"; {1 - left / self._total if self._total else 1.0:.0%}{of}"
        if not self._done or not left:
            return text
        return f"{text}, about {format_duration((time.monotonic() - self._start) * left / self._done)} left"


def _messages(unit: Unit) -> ProgressCallback:
    """Return a callback that logs messages, ``INTERVAL_S`` apart, about work that takes longer than that."""
    last = time.monotonic()

    def show(name: str, done: int, total: int | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= INTERVAL_S:
            last = now
            numbers = [done, total] if total else [done]
            texts = [f"{number / MB:,.1f}" if unit == "bytes" else f"{number:,}" for number in numbers]
            logger.info(f"{name}: {' of '.join(texts)} {'MB' if unit == 'bytes' else unit}")

    return show


@contextmanager
def _bars(unit: Unit) -> Iterator[Callable[..., None]]:
    """Show bars on standard error; text printed there meanwhile appears above the bars."""
    from rich import progress
    from rich.console import Console

    name = progress.TextColumn("{task.description}", markup=False)  # a label may hold [brackets]
    counts = [progress.MofNCompleteColumn()] if unit != "bytes" else [progress.DownloadColumn()]
    note = progress.TextColumn("{task.fields[note]}")
    columns = [name, progress.BarColumn(), *counts, progress.TimeRemainingColumn(), note]
    tasks: dict[str, progress.TaskID] = {}
    with progress.Progress(*columns, console=Console(stderr=True), transient=unit == "pairs") as display:

        def show(name: str, done: int, total: int | None, note: str = "") -> None:
            if name not in tasks:
                tasks[name] = display.add_task(visible(name), total=total, note=note)
            display.update(tasks[name], completed=done, total=total, note=note)

        yield show


def format_duration(seconds: float) -> str:
    """Format a time as "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:,.1f} h"
