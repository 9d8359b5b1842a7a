"""Signals and locks: work ends at a safe point, and one process at a time owns a folder."""

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from filelock import FileLock, Timeout

# Handling of Ctrl-C, SIGTERM and SIGHUP: work ends at a safe point instead of in the middle.


RESEND_S = 0.01
"""Time until a signal is sent again whose exception was discarded."""


def _end_signals() -> list[int]:
    """SIGTERM, and SIGHUP of a terminal that is closed, unless it is ignored, as under nohup."""
    hangups = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # Windows has none
    return [signal.SIGTERM, *(each for each in hangups if signal.getsignal(each) != signal.SIG_IGN)]


class Interrupted(Exception):
    """The end of work, its state saved, because of signal ``signum``."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(signum, message)  # these arguments make it again in another process
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message


class Terminated(BaseException):
    """SIGTERM or SIGHUP outside of ``stop_on_signals``; no ``except Exception`` stops it."""

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__(signum)
        self.status = 128 + signum


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``Terminated`` in a block, so that ``finally`` clauses clean up.

    Python discards an exception that a signal raises in a callback of its own, such as one of an import: the
    signal is then sent again.
    """

    def terminate(signum: int, _frame: FrameType | None) -> None:
        raise Terminated(signum)

    def send_again(discarded: "sys.UnraisableHookArgs") -> None:
        error = discarded.exc_value
        if isinstance(error, Terminated | KeyboardInterrupt):
            signum = error.args[0] if isinstance(error, Terminated) else signal.SIGINT
            threading.Timer(RESEND_S, signal.raise_signal, [signum]).start()
        else:
            hook(discarded)

    hook, sys.unraisablehook = sys.unraisablehook, send_again
    try:
        with _handle(_end_signals(), terminate):
            yield
    finally:
        sys.unraisablehook = hook


def end_at_once() -> AbstractContextManager[object]:
    """Let signals end this process in a block that waits in C++, where Python's handlers do not run."""
    return _handle([signal.SIGINT, *_end_signals()], signal.SIG_DFL)


@contextmanager
def _handle(signums: Iterable[int], handler: Any) -> Iterator[dict[int, Any]]:
    """Set a handler in a block, without effect in another thread than the main one; yields those before."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {signum: signal.signal(signum, handler) for signum in signums if is_main}
    try:
        yield before
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


class StopRequest:
    """The request to stop."""

    signum: int | None = None
    """The signal; None while there was none."""


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Record the first SIGINT, SIGTERM or SIGHUP instead of acting on it; a second one acts as before.

    In a job of Slurm, which sends SIGTERM both to the job and to the step in it, and SIGKILL if they do not
    end, a second one has no effect. In another thread than the main one, where Python allows no handlers,
    signals keep their effect.
    """
    request = StopRequest()

    def record(signum: int, _: FrameType | None) -> None:
        request.signum = request.signum or signum
        if "SUBMITIT_EXECUTOR" not in os.environ:
            for each, handler in before.items():
                signal.signal(each, handler)

    with _handle([signal.SIGINT, *_end_signals()], record) as before:
        yield request


# Locks between processes: a killed process gives its locks up, since the operating system holds them.


logger = logging.getLogger(__name__)

LOCK = ".lock"
"""The file in a locked folder; it names the process that holds the lock."""
PATIENCE_S = 0.1
"""Time to wait for a process that only asks whether the lock is held."""


class Locked(Exception):
    """Another process holds the lock; the message names it."""


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of ``folder`` for the time of a block; a lock that this process holds may be taken again.

    Args:
        folder: created if necessary.
        wait: wait until another process gives the lock up, with a message; else raise.

    Raises:
        Locked: another process holds the lock, and ``wait`` is False.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout=PATIENCE_S)
    except Timeout:
        if not wait:
            raise Locked(f"{folder} is in use by {_owner(folder)}") from None
        logger.info(f"waiting for {_owner(folder)}, which uses {folder}")
        lock.acquire()
    try:
        with suppress(OSError):  # a full disk is reported by what is written next
            path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        yield
    finally:
        if os.name != "nt" and lock.lock_counter == 1:
            path.unlink(missing_ok=True)  # filelock notices that a file it waits for was deleted
        lock.release()


def _owner(folder: Path) -> str:
    """Name the process that noted that it holds the lock of ``folder``."""
    try:
        note = json.loads((folder / LOCK).read_bytes())
        return f"process {int(note['pid'])} on {str(note['host'])[:80]!r}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
