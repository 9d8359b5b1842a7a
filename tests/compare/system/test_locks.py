"""Locks of folders: one process at a time, given up by a killed one, nothing left behind."""

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

from compare.system.signals import LOCK, Locked, is_locked, lock_folder
from tests.kits.paths import ROOT

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


def test_a_lock_excludes_another_process_and_names_it(tmp_path: Path):
    with other_process(tmp_path) as process:
        with (
            pytest.raises(Locked, match=rf"{tmp_path} is in use by process {process.pid} on"),
            lock_folder(tmp_path),
        ):
            pass
        assert (tmp_path / LOCK).is_file()  # still that of the other process


def test_asking_for_the_state_of_a_lock_writes_nothing(tmp_path: Path):
    folder = tmp_path / "run"
    assert not is_locked(folder)
    assert not folder.exists()
    with other_process(folder) as process:
        before = (folder / LOCK).stat()
        assert is_locked(folder)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not is_locked(folder)
        after = (folder / LOCK).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_asking_for_the_state_of_a_lock_does_not_stand_in_the_way(tmp_path: Path):
    """One process asks, which takes microseconds, while another takes the lock."""
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / LOCK).touch()  # of a process that was killed
    with (tmp_path / LOCK).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not is_locked(tmp_path)  # several may ask at once
        threading.Timer(0.02, fcntl.flock, [file, fcntl.LOCK_UN]).start()
        with lock_folder(tmp_path):
            pass


def test_a_killed_process_gives_its_lock_up(tmp_path: Path):
    with other_process(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with lock_folder(tmp_path):
            assert f'"pid": {os.getpid()}' in (tmp_path / LOCK).read_text()
    assert not list(tmp_path.iterdir())


def test_waiting_ends_with_the_other_process(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "compare")
    with other_process(tmp_path) as process:
        threading.Timer(0.5, process.kill).start()
        start = time.monotonic()
        with lock_folder(tmp_path, wait=True):
            assert time.monotonic() - start > 0.2
    assert f"waiting for process {process.pid}" in caplog.text


def test_a_lock_may_be_taken_again_by_its_holder(tmp_path: Path):
    with lock_folder(tmp_path):
        with lock_folder(tmp_path):
            pass
        assert (tmp_path / LOCK).is_file()
    assert not list(tmp_path.iterdir())


def test_a_damaged_note_names_no_process(tmp_path: Path):
    with other_process(tmp_path):
        (tmp_path / LOCK).write_text("[")
        with pytest.raises(Locked, match="another process"), lock_folder(tmp_path):
            pass
