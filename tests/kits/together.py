"""Processes of one job, forked from one interpreter, with the environment that torchrun would give them."""

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable


def fork(size: int, work: Callable[[], int]) -> list[int]:
    """Start ``work`` in ``size`` processes, which find each other at a free port; return their ids."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [_fork_one(rank, size, port, work) for rank in range(size)]


def statuses(pids: list[int]) -> list[int]:
    """Wait for processes; returns their exit statuses, negative for those that a signal has ended."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def _fork_one(rank: int, size: int, port: int, work: Callable[[], int]) -> int:
    if pid := os.fork():
        return pid
    status = 70
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
        os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size)) | {
            "MASTER_PORT": str(port)
        }
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return 0
