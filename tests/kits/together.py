"""Processes of one job, forked from one interpreter, with the environment that torchrun would give them.

As a program it runs an experiment in several processes again and again, each time ended in another way.

    python -m tests.kits.together CONFIG FOLDER

1. Two processes; one has too little memory for update 5.
2. Two processes; the second is killed.
3. Two processes; the second gets SIGTERM.
4. Three processes, which finish the experiment.

It prints the exit statuses as JSON, a list per call.
"""

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare.experiment.run
import compare.report.table  # noqa: F401
from compare.cli import main as command
from compare.training import trainer

LIMIT_S = 240


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun sets for one of several processes on one machine."""
    places = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size))
    return {**places, **sizes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def fork(size: int, work: Callable[[], int]) -> list[int]:
    """Start ``work`` in ``size`` processes, which find each other at a free port; return their ids."""
    port = free_port()
    return [_fork_one(rank, size, port, work) for rank in range(size)]


def statuses(pids: list[int]) -> list[int]:
    """Wait for processes; returns their exit statuses, negative for those that a signal has ended.

    They are killed after ``LIMIT_S``: one may wait for ever for another that has swallowed an exception.
    """
    ended: dict[int, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < len(pids):
        for pid in pids:
            if pid not in ended and (found := os.waitpid(pid, os.WNOHANG))[0]:
                ended[pid] = os.waitstatus_to_exitcode(found[1])
            elif pid not in ended and time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [ended[pid] for pid in pids]


def _fork_one(rank: int, size: int, port: int, work: Callable[[], int]) -> int:
    if pid := os.fork():
        return pid
    status = 70
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        os.environ |= environment(rank, size, port)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return 0


def start(config: str, folder: Path, size: int, prepare: Callable[[], None] = lambda: None) -> list[int]:
    def work() -> int:
        prepare()
        return command(["run", config, "--out", str(folder), "-q"])

    return fork(size, work)


def count_lines(log: Path) -> int:
    """Count the lines of a log; 0 without one (a run that starts from the beginning deletes it first)."""
    try:
        return log.read_text().count("\n")
    except FileNotFoundError:
        return 0


def end(pid: int, signum: signal.Signals, log: Path, lines: int) -> None:
    """Send a signal to a process as soon as the log has so many lines."""
    deadline = time.monotonic() + LIMIT_S
    while count_lines(log) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(pid, signum)


def fail_at_update_5() -> None:
    """Let process 1 have too little memory."""
    real, calls = trainer.add_gradients, []

    def add_gradients(*arguments: Any, **settings: Any) -> Any:
        calls.append(None)
        if len(calls) == 5 and os.environ["RANK"] == "1":
            raise MemoryError("no memory left in process 1")
        return real(*arguments, **settings)

    trainer.add_gradients = add_gradients


def main(config: str, folder: Path) -> None:
    log = folder / "luong-seed1" / "metrics.jsonl"
    ended = [statuses(start(config, folder, 2, fail_at_update_5))]
    (folder.parent / "failed.json").write_bytes((folder / "luong-seed1" / "result.json").read_bytes())
    for signum, lines in ((signal.SIGKILL, 6), (signal.SIGTERM, 14)):
        pids = start(config, folder, 2)
        end(pids[-1], signum, log, lines)
        ended.append(statuses(pids))
    print(json.dumps([*ended, statuses(start(config, folder, 3))]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
