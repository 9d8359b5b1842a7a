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


def children(pid: int) -> list[int]:
    """The process ids of the children of a process (Linux)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_order(workers: int, count: int) -> None:
    assert list(map_blocks(partial(add, 10), range(count), workers=workers)) == list(range(10, 10 + count))


def test_a_small_corpus_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: 2)
    monkeypatch.setattr(parallel, "Worker", None)  # calling it would fail
    blocks = range(parallel.SERIAL_BLOCKS)
    assert list(map_blocks(partial(add, 1), blocks)) == list(range(1, parallel.SERIAL_BLOCKS + 1))


def test_a_large_one_starts_as_many_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: 2)
    monkeypatch.setattr(parallel, "SERIAL_BLOCKS", 1)
    pids = list(map_blocks(pid_of, range(5)))
    assert pids[0] == os.getpid()
    assert len(set(pids[1:])) == 2
    assert pids[1::2] == pids[1:2] * 2


def test_processes_of_torchrun_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: 12)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert worker_count() == parallel.MAX_WORKERS
    for processes, workers in (("1", 8), ("4", 3), ("16", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert worker_count() == workers


def pid_of(_: int) -> int:
    return os.getpid()


def test_blocks_are_read_at_most_one_per_worker_ahead() -> None:
    read = []

    def blocks() -> Iterator[int]:
        for number in range(9):
            read.append(number)
            yield number

    results = map_blocks(partial(add, 1), blocks(), workers=2)
    for number in range(9):
        assert next(results) == number + 1
        assert len(read) <= number + 3


def test_an_error_of_the_function_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_blocks(partial(truediv, 1), [1, 2, 0, 4], workers=2))


def test_an_error_of_the_blocks_ends_the_workers() -> None:
    def blocks() -> Iterator[int]:
        yield from range(4)
        raise ValueError("line 5")

    before = set(children(os.getpid())) if sys.platform == "linux" else set()
    with pytest.raises(ValueError, match="line 5"):
        list(map_blocks(partial(add, 1), blocks(), workers=2))
    if sys.platform == "linux":
        assert set(children(os.getpid())) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_worker_that_was_killed_is_one_clear_error() -> None:
    results = map_blocks(pid_of, range(9), workers=2)
    os.kill(next(results), signal.SIGKILL)
    with pytest.raises(ChildProcessError, match=r"a worker process ended with signal 9; if memory is short"):
        list(results)


PROGRAM = """
import os, sys, time
from functools import partial
from data.parallel import map_blocks
def blocks():
    for number in range(10_000):
        yield b"x" * 100_000
for number, _ in enumerate(map_blocks(len, blocks(), workers=2)):
    if number == 20:
        print("working", flush=True)
    time.sleep(0.001)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(signum: int, tmp_path: Path) -> None:
    """Also from a script without ``if __name__ == "__main__"``, as multiprocessing would need it."""
    (tmp_path / "script.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        assert parent.stdout.readline() == "working\n"
        workers = children(parent.pid)
        assert len(workers) == 2
        parent.send_signal(signum)
        errors = parent.stderr.read()  # ends when the workers have ended too
    assert errors.count("Traceback") == (signum == signal.SIGINT)  # that of the parent's KeyboardInterrupt
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


WAITING = """
import sys
from data.parallel import Worker
worker = Worker(exec)
worker.send("import sys, time; print('working', file=sys.stderr, flush=True); time.sleep(60)")
worker.receive()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a worker on Windows ends after its block")
def test_a_worker_ends_in_the_middle_of_a_block(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WAITING)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"], env=environment, stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stderr is not None
        assert parent.stderr.readline() == "working\n"
        parent.kill()
        start = time.monotonic()
        assert parent.stderr.read() == ""  # ends when the worker has ended too
    assert time.monotonic() - start < 30
