"""Worker processes: results in order, errors passed on, and no process left, however the parent ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from operator import add, truediv
from pathlib import Path

import pytest

from data import parallel
from data.parallel import map_blocks, worker_count
from tests.kits.paths import ROOT


def pid_of(_: int) -> int:
    return os.getpid()


def children(pid: int) -> set[int]:
    """The workers of a process (Linux), without multiprocessing's resource tracker."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in pids if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_results_come_in_order_and_blocks_are_read_late(workers: int, count: int) -> None:
    read = []

    def blocks() -> Iterator[int]:
        for number in range(count):
            read.append(number)
            yield number

    results = []
    for result in map_blocks(partial(add, 10), blocks(), workers=workers):
        results.append(result)
        assert len(read) <= len(results) + workers
    assert results == list(range(10, 10 + count))


def test_only_a_large_corpus_starts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: 2)
    monkeypatch.setattr(parallel, "SERIAL_BLOCKS", 3)
    with monkeypatch.context() as patch:
        patch.setattr(parallel, "ProcessPoolExecutor", None)  # calling it would fail
        assert list(map_blocks(pid_of, range(3))) == [os.getpid()] * 3
    assert os.getpid() not in list(map_blocks(pid_of, range(5)))[3:]
    monkeypatch.setattr(parallel, "available_cores", lambda: 12)
    for processes, workers in (("1", 8), ("4", 3), ("16", 1)):  # of torchrun, which share the cores
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert worker_count() == workers


@pytest.mark.parametrize("where", ["function", "blocks"])
def test_an_error_is_raised_here_and_ends_the_workers(where: str) -> None:
    def blocks() -> Iterator[int]:
        yield from [1, 2, 0, 4, 5, 6] if where == "function" else [1, 2, 3]
        raise ValueError("line 7")

    with pytest.raises(ZeroDivisionError if where == "function" else ValueError):
        list(map_blocks(partial(truediv, 1), blocks(), workers=2))
    if sys.platform == "linux":
        assert not children(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_worker_that_was_killed_is_one_clear_error() -> None:
    results = map_blocks(pid_of, range(99), workers=2)
    os.kill(next(results), signal.SIGKILL)
    with pytest.raises(ChildProcessError, match=r"a worker process was ended from outside; if memory is"):
        list(results)


PROGRAM = """
from data.parallel import map_blocks
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
list(map_blocks(time.sleep, iter([0.1] * 10_000), workers=2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(signum: int, tmp_path: Path) -> None:
    """Also from a script without ``if __name__ == "__main__"``, as multiprocessing would need it."""
    (tmp_path / "script.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        while len(workers := children(parent.pid)) < 2:
            assert parent.poll() is None
            time.sleep(0.01)
        time.sleep(0.5)  # they import
        parent.send_signal(signum)
        errors = parent.stderr.read()  # ends when the workers have ended too
    assert errors.count("Traceback") == (signum == signal.SIGINT)  # that of the parent's KeyboardInterrupt
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
