"""Requests to stop by signal, and locks of folders: one process at a time, given up by a killed one."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compare.system.signals import (
    LOCK,
    Locked,
    Terminated,
    lock_folder,
    raise_on_sigterm,
    stop_on_signals,
)
from tests.kits.paths import ROOT


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_recorded_and_a_second_one_acts_as_before(second: signal.Signals):
    """Ctrl-C ends a run that already saves its state because of SIGTERM."""
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    own = lambda signum, _: received.append(signum)  # noqa: E731
    try:
        for number in handlers:
            signal.signal(number, own)
        with stop_on_signals() as request:
            assert request.signum is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert (request.signum, received) == (signal.SIGTERM, [])
            os.kill(os.getpid(), second)
            assert (request.signum, received) == (signal.SIGTERM, [second])
        assert all(signal.getsignal(number) is own for number in handlers)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_in_a_job_of_slurm_a_second_signal_is_ignored(monkeypatch: pytest.MonkeyPatch):
    """Slurm sends SIGTERM both to a job and to the step in it."""
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), raise_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    with raise_on_sigterm(), stop_on_signals() as request:
        for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), signum)
        assert request.signum == signal.SIGTERM


def test_another_thread_can_work_without_handlers():
    requests: list[int | None] = []

    def work() -> None:
        with raise_on_sigterm(), stop_on_signals() as request:
            requests.append(request.signum)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [None]


HOLD = """
import sys, time
from pathlib import Path
from compare.system.signals import lock_folder
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
            with lock_folder(folder):  # its holder may take it again
                pass
            assert (folder / LOCK).is_file()
    assert not list(folder.iterdir())


def test_waiting_ends_with_the_other_process(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "compare")
    with other_process(tmp_path) as process:
        threading.Timer(0.5, process.kill).start()
        start = time.monotonic()
        with lock_folder(tmp_path, wait=True):
            assert time.monotonic() - start > 0.2
    assert f"waiting for process {process.pid}" in caplog.text
