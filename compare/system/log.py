"""Output of log messages: to standard error for the command line, to log.txt for a run.

The library itself only sends messages to the loggers ``compare`` and ``data``; a program that imports it
sees them if it configures ``logging``.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from data.text.control_characters import visible
from data.text.files import append_whole

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


class _PreviousHandlers(logging.Handler):
    """Passes messages to the handlers that a logger had before, from the level that it had before."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger.getEffectiveLevel())
        self._handlers = list(logger.handlers)
        self._parent = logger.parent if logger.propagate else None

    def emit(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            if record.levelno >= handler.level:
                handler.handle(record)
        if self._parent is not None and self._parent.hasHandlers():
            self._parent.callHandlers(record)


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
    handler = _FileHandler(path)
    with ExitStack() as stack:
        for name in PACKAGES:
            stack.enter_context(_also_to(handler, logging.getLogger(name)))
        yield


@contextmanager
def _also_to(handler: logging.Handler, logger: logging.Logger) -> Iterator[None]:
    """Send messages of ``logger`` from INFO on to ``handler`` too, without lowering any other's level."""
    level, handlers, propagate = logger.level, logger.handlers, logger.propagate
    previous = _PreviousHandlers(logger)
    logger.handlers, logger.propagate = [handler, previous], False
    logger.setLevel(min(logging.INFO, previous.level))
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
