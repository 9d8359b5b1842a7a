"""Signals and locks: work ends at a safe point, and one process at a time owns a folder."""

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from filelock import FileLock, Timeout

# Handling of Ctrl-C and SIGTERM: work ends at a safe point instead of in the middle.


class Interrupted(Exception):
    """The end of work, its state saved, because of signal ``signum``."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(signum, message)  # these arguments make it again in another process
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message


class Terminated(BaseException):
    """SIGTERM outside of ``stop_on_signals``; as with KeyboardInterrupt, no ``except Exception`` stops it."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise ``Terminated`` in a block, so that ``finally`` clauses clean up.

    Without effect in another thread than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_signum: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopRequest:
    """The request to stop."""

    signum: int | None = None
    """The signal; None while there was none."""


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Record the first SIGINT or SIGTERM instead of acting on it; a second one acts as before.

    In a job of Slurm, which sends SIGTERM both to the job and to the step in it, and SIGKILL if they do not
    end, a second one has no effect. In another thread than the main one, where Python allows no handlers,
    signals keep their effect.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def record(signum: int, _: FrameType | None) -> None:
        request.signum = request.signum or signum
        if "SUBMITIT_EXECUTOR" not in os.environ:
            for each, handler in before.items():
                signal.signal(each, handler)

    try:
        for signum in before:
            signal.signal(signum, record)
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


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
