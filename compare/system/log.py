"""Log messages and progress: to standard error for the command line, to log.txt for a run."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from data.files import ProgressCallback, append_whole
from data.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress


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
    handler, loggers = _FileHandler(path), [logging.getLogger(name) for name in PACKAGES]
    levels = [logger.level for logger in loggers]
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
        self.quiet = quiet
        self._overall: _Overall | None = None

    def expect(self, runs: Mapping[str, tuple[int, float]]) -> None:
        """Announce the training runs that follow; messages then tell their share and the time left.

        Args:
            runs: maximal updates and work per update, in any unit, by name of the run.
        """
        self._overall = _Overall(runs) if runs else None

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

        def log(name: str, max_updates: int, line: dict[str, Any]) -> None:
            log_metrics(name, max_updates, line, self._overall.add(name, line) if self._overall else "")

        if not self._has_bars():
            yield lambda name, max_updates, line: log(name, max_updates, line) if line else None
            return
        with _bars("updates") as bars:

            def show(name: str, max_updates: int, line: dict[str, Any]) -> None:
                if not line:
                    bars(name, 0, max_updates, note="")
                elif line["kind"] == "train":
                    note = f"loss {line['loss']:.3f}  {line['tokens_per_s']:,.0f} tokens/s"
                    bars(name, line["update"], max_updates, note=note)
                else:
                    log(name, max_updates, line)

            yield show

    def pairs(self) -> AbstractContextManager[ProgressCallback]:
        """Show work on many sentence pairs, one step at a time; yields the callback."""
        return self._counting("pairs")

    def downloads(self) -> AbstractContextManager[ProgressCallback]:
        """Show one bar per download; yields the callback, which takes numbers of bytes."""
        return self._counting("bytes")

    @contextmanager
    def _counting(self, unit: Unit) -> Iterator[ProgressCallback]:
        if self._has_bars():
            with _bars(unit) as bars:
                yield bars
        else:
            yield _Messages(unit)

    def _has_bars(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


class _Overall:
    """Share of all announced training that is done, and the time that the rest will take.

    The time is that of the work done since this object was made, whatever an earlier call has done.
    """

    def __init__(self, runs: Mapping[str, tuple[int, float]]) -> None:
        self._runs = dict(runs)
        self._left = {name: updates * work for name, (updates, work) in runs.items()}
        self._total = sum(self._left.values())
        self._updates: dict[str, int] = {}
        self._done = 0.0
        self._start = time.monotonic()

    def add(self, name: str, line: Mapping[str, Any]) -> str:
        """Count a line of metrics; returns "; 25% of all 4 runs, about 3 min left", or "" where unknown."""
        if name not in self._runs or "update" not in line:
            return ""
        updates, work = self._runs[name]
        before = self._updates.get(name, line["update"] - line.get("updates", 0))
        self._done += work * (line["update"] - before)
        self._updates[name] = line["update"]
        self._left[name] = 0.0 if line["kind"] == "final" else work * max(0, updates - line["update"])
        left = sum(self._left.values())
        of = f" of all {len(self._runs)} runs" if len(self._runs) > 1 else ""
        share = 1 - left / self._total if self._total else 1.0
        if not self._done or not left:
            return f"; {share:.0%}{of}"
        seconds = (time.monotonic() - self._start) * left / self._done
        return f"; {share:.0%}{of}, about {format_duration(seconds)} left"


class _Bars:
    """Progress bars by name; of pairs, only the latest is shown."""

    def __init__(self, progress: "Progress", unit: Unit) -> None:
        self._progress, self._unit = progress, unit
        self._tasks: dict[str, Any] = {}

    def __call__(self, name: str, done: int, total: int | None, **fields: Any) -> None:
        if name not in self._tasks:
            for task in self._tasks.values() if self._unit == "pairs" else ():
                self._progress.update(task, visible=False)
            self._tasks[name] = self._progress.add_task(visible(name), total=total, **fields)
        self._progress.update(self._tasks[name], completed=done, total=total, **fields)


class _Messages:
    """Log messages, at least ``INTERVAL_S`` apart, about work that takes longer than that."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._last = time.monotonic()
        self._starts: dict[str, float] = {}

    def __call__(self, name: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if name not in self._starts:
            self._starts[name] = now
            if self._unit == "pairs":  # one step after the other, while downloads are one long piece of work
                self._last = now
        if now - self._last >= INTERVAL_S:
            self._last = now
            logger.info(self._text(name, done, total, now - self._starts[name]))

    def _text(self, name: str, done: int, total: int | None, seconds: float) -> str:
        if self._unit == "bytes":
            of = f" of {total / MB:,.1f}" if total else ""
            return f"{name}: {done / MB:,.1f}{of} MB"
        of = f" of {total:,}" if total else ""
        return f"{name}: {done:,}{of} pairs, {done / seconds:,.0f} a second"


@contextmanager
def _bars(unit: Unit) -> Iterator[_Bars]:
    """Show bars on standard error; text printed there meanwhile appears above the bars."""
    from rich import progress
    from rich.console import Console

    counts: dict[Unit, list[str | progress.ProgressColumn]] = {
        "updates": ["{task.completed}/{task.total}"],
        "pairs": [progress.MofNCompleteColumn()],
        "bytes": [progress.DownloadColumn(), progress.TransferSpeedColumn()],
    }
    name = progress.TextColumn("{task.description}", markup=False)  # a label may hold [brackets]
    columns = [name, progress.BarColumn(), *counts[unit], progress.TimeRemainingColumn()]
    if unit == "updates":
        columns.append(progress.TextColumn("{task.fields[note]}"))
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=unit == "pairs") as display:
        yield _Bars(display, unit)


def format_duration(seconds: float) -> str:
    """Format a time as "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:,.1f} h"


def log_metrics(name: str, max_updates: int, line: dict[str, Any], overall: str = "") -> None:
    """Log one line of metrics, if it is of a kind that people want to see.

    Args:
        name: of the run.
        max_updates: its updates.
        line: the line.
        overall: what is added about all runs.
    """
    if line["kind"] == "train":
        text = f"loss {line['loss']:.3f}, {line['tokens_per_s']:,.0f} tokens/s"
    elif line["kind"] in ("valid", "final"):
        bleu = "" if line["bleu"] is None else f", BLEU {line['bleu']:.2f}"  # language models have none
        text = f"validation loss {line['loss']:.3f}{bleu}"
        text = f"keeps {line['chosen']}, {text}" if line["kind"] == "final" else text
    else:
        return
    logger.info(f"{name} {line['update']}/{max_updates} {line['seconds']:.0f} s: {text}{overall}")
