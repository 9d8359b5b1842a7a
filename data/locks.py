"""Locks between processes. A killed process gives its locks up, since the operating system holds them."""

import errno
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from data.files import ensure_utf8, warn_once

logger = logging.getLogger(__name__)

LOCK = ".lock"
"""The file in a locked folder; it names the process that holds the lock."""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of file systems without locks, such as NFS without its lock daemon and some of FUSE."""
LOCK_PATIENCE_S = 0.1
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
        ValueError: its path is not UTF-8.
    """
    ensure_utf8(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    lock = FileLock(path, is_singleton=True, fallback_to_soft=False)  # a soft lock outlives a killed process
    try:
        lock.acquire(timeout=LOCK_PATIENCE_S)
    except Timeout:
        if not wait:
            raise Locked(f"{folder} is in use by {_owner(folder)}") from None
        logger.info(f"waiting for {_owner(folder)}, which uses {folder}")
        lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        warn_once(
            f"the file system of {folder.parent} has no locks: start only one command at a time that writes "
            "there, without --jobs"
        )
    try:
        with suppress(OSError):  # a full disk is reported by what is written next
            path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        yield
    finally:
        if os.name != "nt" and lock.lock_counter <= 1:
            path.unlink(missing_ok=True)  # filelock notices that a file it waits for was deleted
        lock.release()


def _owner(folder: Path) -> str:
    """Name the process that noted that it holds the lock of ``folder``."""
    try:
        note = json.loads((folder / LOCK).read_bytes())
        return f"process {int(note['pid'])} on {str(note['host'])[:80]!r}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
