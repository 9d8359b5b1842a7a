"""Requests to stop by signal, and locks of folders: one process at a time, given up by a killed one."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compare.system.processes import Terminated, raise_on_signals, stop_on_signals
from data.files import warn_once
from data.locks import LOCK, Locked, lock_folder
from tests.kits.common import ROOT

no_hangup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM),
        pytest.param("SIGHUP", signal.SIGTERM, marks=no_hangup),
    ],
)
def test_the_first_signal_is_recorded_and_a_second_one_acts_as_before(first: Any, second: signal.Signals):
    """Ctrl-C ends a run that already saves its state because of SIGTERM, or since its terminal was closed."""
    first = getattr(signal, first) if isinstance(first, str) else first
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, first)}
    note = lambda signum, _: received.append(signum)  # noqa: E731
    try:
        for number in handlers:
            signal.signal(number, note)
        with stop_on_signals() as request:
            assert request.signum is None
            os.kill(os.getpid(), first)
            assert (request.signum, received) == (first, [])
            os.kill(os.getpid(), second)
            assert (request.signum, received) == (first, [second])
        assert all(signal.getsignal(number) is note for number in handlers)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@no_hangup
def test_under_nohup_a_closed_terminal_ends_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raise_on_signals(), stop_on_signals() as request:
            os.kill(os.getpid(), signal.SIGHUP)
        assert request.signum is None
    finally:
        signal.signal(signal.SIGHUP, before)


class Callback:
    """Python discards what is raised while an object is deleted, as in the callbacks of an import."""

    def __init__(self, signum: int) -> None:
        self.signum = signum

    def __del__(self) -> None:
        signal.raise_signal(self.signum)


@pytest.mark.parametrize(
    ("signum", "kind"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_whose_exception_python_discards_is_not_lost(
    signum: int, kind: type[BaseException], capfd: pytest.CaptureFixture[str]
):
    with pytest.raises(kind), raise_on_signals():  # noqa: PT012 (it is raised after the callback)
        Callback(signum)
        time.sleep(20)
    assert capfd.readouterr().err == ""


def test_in_a_job_of_slurm_a_second_signal_is_ignored(monkeypatch: pytest.MonkeyPatch):
    """Slurm sends SIGTERM both to a job and to the step in it."""
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), raise_on_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    with raise_on_signals(), stop_on_signals() as request:
        for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), signum)
        assert request.signum == signal.SIGTERM


def test_another_thread_can_work_without_handlers():
    requests: list[int | None] = []

    def work() -> None:
        with raise_on_signals(), stop_on_signals() as request:
            requests.append(request.signum)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [None]


HOLD = """
import sys, time
from pathlib import Path
from data.locks import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def other_process(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock of ``folder``."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_lock_excludes_another_process_which_is_named_until_it_is_killed(tmp_path: Path):
    folder = tmp_path / "run"
    with other_process(folder) as process:
        with pytest.raises(Locked, match=rf"{folder} is in use by process {process.pid} on"):
            lock_folder(folder).__enter__()
        (folder / LOCK).write_text("[")
        with pytest.raises(Locked, match="another process"):
            lock_folder(folder).__enter__()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with lock_folder(folder):
            assert f'"pid": {os.getpid()}' in (folder / LOCK).read_text()
            with lock_folder(folder):  # the holder may take it again
                pass
            assert (folder / LOCK).is_file()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
):
    def flock(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    warn_once.cache_clear()
    for _ in range(2):
        with lock_folder(tmp_path), lock_folder(tmp_path, wait=True):
            pass
    assert caplog.text.count("has no locks: start only one command at a time") == 1
    assert not list(tmp_path.iterdir())
    warn_once.cache_clear()


def test_waiting_ends_with_the_other_process(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "data")
    with other_process(tmp_path) as process:
        threading.Timer(0.5, process.kill).start()
        start = time.monotonic()
        with lock_folder(tmp_path, wait=True):
            assert time.monotonic() - start > 0.2
    assert f"waiting for process {process.pid}" in caplog.text
