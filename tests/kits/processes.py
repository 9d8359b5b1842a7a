"""Forked processes: commands of ``attnbench``, and processes with the environment of torchrun.

A fork is faster than a new interpreter, because its parent has imported the modules already.

    python -m tests.kits.processes < STEPS

STEPS is a JSON list. A list of arguments is an ``attnbench`` command; a text is a shell command, which must
succeed. The program prints a JSON list of (exit status, standard error) of the ``attnbench`` commands.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

IMPORTED = (
    "compare.cli compare.experiment.run compare.report.html compare.report.plots compare.report.result_table "
    "data.prepare torch._dynamo sacrebleu matplotlib.backends.backend_svg PIL.PngImagePlugin"
)
"""Modules that commands import when they need them."""
LIMIT_S = 240


def _fork(work: Callable[[], int]) -> int:
    """Run ``work`` in a fork, which ends with its result as exit status; return the process id."""
    if pid := os.fork():
        return pid
    status = 70
    try:
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return 0


def attnbench(arguments: Sequence[str], prepare: Callable[[], object] = lambda: None) -> tuple[int, str]:
    """Call ``prepare`` and run a command in a fork; return its exit status and standard error."""
    with tempfile.TemporaryFile() as errors:

        def work() -> int:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(errors.fileno(), 2)
            prepare()
            return int(import_module("compare.cli").main(list(arguments)))

        status = os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1])
        errors.seek(0)
        return status, errors.read().decode()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets for one of ``size`` processes on one machine."""
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size))
    return {**ranks, **sizes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def fork(size: int, work: Callable[[], int]) -> list[int]:
    """Start ``work`` in ``size`` processes, as torchrun would; return their ids."""
    port = free_port()

    def begin(rank: int) -> int:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        os.environ |= environment(rank, size, port)
        return work()

    return [_fork(lambda rank=rank: begin(rank)) for rank in range(size)]


def statuses(pids: list[int]) -> list[int]:
    """Wait for processes; return their exit statuses, negative for those that a signal has ended.

    After ``LIMIT_S`` they are killed: one may wait forever for another that has swallowed an exception.
    """
    ended: dict[int, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < len(pids):
        for pid in pids:
            if pid not in ended and (answer := os.waitpid(pid, os.WNOHANG))[0]:
                ended[pid] = os.waitstatus_to_exitcode(answer[1])
            elif pid not in ended and time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [ended[pid] for pid in pids]


def main() -> None:
    for name in IMPORTED.split():
        import_module(name)
    answers = []
    for step in json.load(sys.stdin):
        if isinstance(step, str):
            subprocess.run(step, shell=True, check=True)
        else:
            answers.append(attnbench(step))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
