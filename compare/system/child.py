"""The inside of a child process that ``children`` starts: it calls one function and reports to its parent.

The parent hears of progress, log messages and the end through a pipe, one JSON object per line. Through
another pipe it asks the child to stop; when that pipe is closed, the parent has died, and the child ends too.
"""

import _thread
import json
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, BinaryIO

from compare.system.log import PACKAGES, Reporter, ShowMetrics, log_metrics
from compare.system.messages import describe_error
from compare.system.processor import pin_to
from compare.system.signals import Interrupted, Locked, Terminated, raise_on_sigterm

STOP = b"."
"""What the parent writes to stop a child."""


class Channel:
    """The way to the parent; what a function that a child calls gets as its first argument."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._lock = threading.Lock()

    def send(self, kind: str, **content: Any) -> None:
        """Send one message."""
        line = json.dumps({"kind": kind, **content}).encode() + b"\n"
        with self._lock, suppress(BrokenPipeError):  # the parent has died
            self._output.write(line)

    def reporter(self, name: str = "") -> Reporter:
        """Return a reporter whose metrics the parent shows, under ``name`` if it is given."""
        return _SendingReporter(self, name)

    @contextmanager
    def messages(self) -> Iterator[None]:
        """Send the log messages of a block, except those about metrics, to the parent."""
        handler = _SendingHandler(self)
        for package in PACKAGES:
            logger = logging.getLogger(package)
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            for package in PACKAGES:
                logging.getLogger(package).removeHandler(handler)


class _SendingReporter(Reporter):
    """Reporter that logs metrics, for log.txt, and sends them."""

    def __init__(self, channel: Channel, name: str) -> None:
        super().__init__(quiet=True)
        self._channel, self._name = channel, name

    @contextmanager
    def trainings(self, names: Mapping[str, str] | None = None) -> Iterator[ShowMetrics]:
        """Yield the function that logs and sends a line of metrics."""

        def show(label: str, max_updates: int, line: dict[str, Any]) -> None:
            if line:
                log_metrics(label, max_updates, line)
            self._channel.send("metrics", label=self._name or label, max_updates=max_updates, line=line)

        yield show


class _SendingHandler(logging.Handler):
    """Log handler that sends messages to the parent."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(logging.INFO)
        self._channel = channel
        self.addFilter(lambda record: record.name != log_metrics.__module__)

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send("log", level=record.levelno, text=record.getMessage())


def main(function: str, arguments: Sequence[Any], processors: Sequence[int]) -> int:
    """Call ``function``, given as "module:name", with a ``Channel`` and ``arguments``.

    Args:
        function: where to find it.
        arguments: what JSON can hold.
        processors: the logical processors to run on; empty: all.

    Returns:
        The exit status: 0, or 1 if the function raised an exception.
    """
    for package in PACKAGES:
        logging.getLogger(package).addHandler(logging.NullHandler())  # else warnings go to standard error
    channel = Channel(os.fdopen(os.dup(1), "wb", buffering=0))
    os.dup2(2, 1)  # what a library prints is no message
    try:
        with raise_on_sigterm():
            threading.Thread(target=_obey_parent, daemon=True).start()
            if processors:
                pin_to(processors)
            module, _, name = function.partition(":")
            call: Callable[..., Any] = getattr(import_module(module), name)
            channel.send("done", value=call(channel, *arguments))
            return 0
    except Interrupted as stop:
        channel.send("stopped", text=str(stop))
    except (Terminated, KeyboardInterrupt):
        channel.send("stopped", text="stopped")
    except Locked as locked:
        channel.send("locked", text=str(locked))
    except (ValueError, OSError) as error:
        channel.send("error", text=describe_error(error))
    except Exception:
        traceback.print_exc()
    return 1


def _obey_parent() -> None:
    """Act as on SIGTERM for each ``STOP`` on standard input; end with the parent."""
    while os.read(0, len(STOP)):  # not sys.stdin, whose lock would still be held at exit
        _thread.interrupt_main(signal.SIGTERM)  # a shell may have made the process ignore SIGINT
    os._exit(1)
