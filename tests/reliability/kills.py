"""Killing of commands: by signals at random times, and at the k-th operation on files."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kits.paths import ROOT
from tests.reliability.commands import Command, run_in_child

ERRORS = "errors"
"""Standard error of the last process, beside the folder of a series."""
LIMIT_S = 180
"""A command that takes longer hangs."""
FILE_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SIGNALS = {"SIGKILL": [signal.SIGKILL], "SIGTERM": [signal.SIGTERM], "SIGINT twice": [signal.SIGINT] * 2}
CHILD_SIGNALS = {"SIGKILL of a child": signal.SIGKILL, "SIGTERM of a child": signal.SIGTERM}
"""Signals to one of the processes that a command has started."""
ENDED_BY = {
    "SIGKILL": {-9},
    "SIGTERM": {143, -15},
    "SIGINT twice": {130, -2},
    **{name: {1} for name in CHILD_SIGNALS},
}
"""Exit statuses of a process that a signal has ended; negative: it died of it, as before Python's start."""

RUNNING: set[int] = set()
"""Process ids of what ``start`` has started and ``wait`` has not seen end."""


@dataclass(frozen=True)
class Ending:
    """The end of a process."""

    status: int
    errors: str
    """Its standard error."""
    hung: bool = False


def start(
    command: Command, folder: Path, *, real: bool = False, before: Callable[[], None] = lambda: None
) -> int:
    """Start a command in a forked process; return its process id.

    Args:
        command: the command.
        folder: the folder of the series; standard error goes to the file ``ERRORS``-PID beside it.
        real: start a new interpreter instead, as from a terminal.
        before: called in a forked process before the command.
    """
    arguments = command.arguments(folder)
    pid = os.fork()
    if pid:
        RUNNING.add(pid)
        return pid
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)
    errors = folder.parent / f"{ERRORS}-{os.getpid()}"
    if not real:
        run_in_child(arguments, errors, before)
    try:
        for descriptor, path in ((1, os.devnull), (2, str(errors))):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        os.execve(sys.executable, [sys.executable, "-m", command.module, *arguments], environment)
    finally:
        os._exit(70)


def wait(pid: int, folder: Path) -> Ending:
    """Wait until a process has ended."""
    deadline, hung = time.monotonic() + LIMIT_S, False
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            hung, deadline = True, deadline + LIMIT_S
        time.sleep(0.005)
    RUNNING.discard(pid)
    path = folder.parent / f"{ERRORS}-{pid}"
    errors = path.read_text(errors="replace") if path.exists() else ""
    path.unlink(missing_ok=True)
    return Ending(status=os.waitstatus_to_exitcode(ended[1]), errors=errors, hung=hung)


def send(pid: int, name: str, draw: random.Random) -> None:
    """Send the signals ``SIGNALS[name]``, up to 50 ms apart, to a process not yet waited for."""
    for number, signum in enumerate(SIGNALS[name]):
        if number:
            time.sleep(draw.uniform(0, 0.05))
        os.kill(pid, signum)


def kill_at_operation(name: str, number: int) -> Callable[[], None]:
    """Make a function that lets its process send itself signals before operations on files.

    Operations are: opening for writing, renaming, removing, making and truncating; and before and after
    fsync.

    Args:
        name: key of ``SIGNALS``; the second signal, if there is one, comes at the next operation.
        number: the operation, counted from 1.
    """
    signals = dict(enumerate(SIGNALS[name], start=number))
    count = 0

    def operation() -> None:
        nonlocal count
        count += 1
        if signum := signals.pop(count, None):
            os.kill(os.getpid(), signum)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if writes or event in FILE_EVENTS:
            operation()

    def install() -> None:
        fsync = os.fsync

        def counted_fsync(descriptor: int) -> None:
            operation()
            fsync(descriptor)
            operation()

        os.fsync = counted_fsync
        sys.addaudithook(hook)

    return install


def count_operations(command: Command, folder: Path) -> int:
    """Run a command undisturbed, and count its operations on files."""
    path = folder.parent / "operations"

    def install() -> None:
        counts = bytearray(1)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        fsync = os.fsync

        def counted_fsync(file: int) -> None:
            os.write(descriptor, counts * 2)
            fsync(file)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
            if writes or event in FILE_EVENTS:
                os.write(descriptor, counts)

        os.fsync = counted_fsync
        sys.addaudithook(hook)

    ending = wait(start(command, folder, before=install), folder)
    if ending.status:
        raise RuntimeError(
            f"{command.name} ends with {ending.status} when nothing disturbs it: {ending.errors}"
        )
    number = path.stat().st_size
    path.unlink()
    return number


def kill_once(
    command: Command,
    folder: Path,
    name: str,
    draw: random.Random,
    *,
    delay_s: float,
    operation: int,
    real: bool,
) -> Ending:
    """Start a command, kill it, and wait for its end.

    Args:
        command: the command.
        folder: the folder of the series.
        name: key of ``SIGNALS`` or of ``CHILD_SIGNALS``.
        draw: random times.
        delay_s: when to kill; without effect if ``operation`` is given.
        operation: kill at this operation on files; 0: at a time.
        real: start a new interpreter.
    """
    if operation:
        return wait(start(command, folder, before=kill_at_operation(name, operation)), folder)
    pid = start(command, folder, real=real)
    time.sleep(delay_s)
    if name in SIGNALS:
        send(pid, name, draw)
    elif children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(int(draw.choice(children)), CHILD_SIGNALS[name])
    return wait(pid, folder)
