"""Work on blocks of text in several processes, with results in the order of the blocks.

The workers are interpreters that this module starts itself. ``multiprocessing`` would run the user's own
script in each of them, and its pools leave processes behind when their parent is killed. A worker here reads
from a pipe and, on Unix, looks for its parent each second, also in the middle of a block: it ends when the
parent does, however that ends. It writes no file.
"""

import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain, islice
from threading import Thread
from typing import Any, TypeVar

SERIAL_BLOCKS = 20
"""Blocks that are worked on in this process before others are started: small corpora need none."""
MAX_WORKERS = 8
"""More workers would wait for the process that reads."""
PARENT_INTERVAL_S = 1.0
"""Time between two looks of a worker for its parent."""
NEW_PROCESS_GROUP = 0x200
"""``subprocess.CREATE_NEW_PROCESS_GROUP``, which only Windows has."""
START = """
import pickle, sys
try:
    sys.path[:] = pickle.load(sys.stdin.buffer)
except EOFError:
    sys.exit()
import data.parallel
data.parallel.serve()
"""
"""Program of a worker. It takes the search path of its parent, so that both import the same modules."""

Block = TypeVar("Block")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count() -> int:
    """Return the number of workers where all processes of ``torchrun`` on this machine start some."""
    return max(1, min(available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1)), MAX_WORKERS))


def map_blocks(
    function: Callable[[Block], Result], blocks: Iterable[Block], *, workers: int | None = None
) -> Iterator[Result]:
    """Apply a function to each block; the results come in the order of the blocks.

    Args:
        function: its result depends on its argument alone; all three can be pickled.
        blocks: they are read in this process, at most one per worker ahead of the results.
        workers: number of further processes, from the first block on; None: one per core, after
            ``SERIAL_BLOCKS`` blocks; 1: none.

    Raises:
        ChildProcessError: a worker was ended from outside, as by lack of memory.
    """
    remaining = iter(blocks)
    if workers is None:
        yield from map(function, islice(remaining, SERIAL_BLOCKS))
        workers = min(available_cores(), MAX_WORKERS)
    first = next(remaining, None)
    if first is None:
        return
    blocks = chain([first], remaining)
    if workers == 1 or not sys.executable:
        yield from map(function, blocks)
        return
    with ExitStack() as stack:
        busy = deque[Worker]()
        for block in blocks:
            if len(busy) < workers:
                worker, result = stack.enter_context(Worker(function)), []
            else:
                worker = busy.popleft()
                result = [worker.receive()]
            worker.send(block)
            busy.append(worker)
            yield from result
        for worker in busy:
            yield worker.receive()


class Worker:
    """A process that applies a function to one block at a time."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        # A group of its own: Ctrl-C in a terminal is for the parent alone, which then ends its workers.
        windows = sys.platform == "win32"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=None if windows else 0,
            creationflags=NEW_PROCESS_GROUP if windows else 0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._results = self._process.stdin, self._process.stdout
        self._start: tuple[Any, ...] = (sys.path, function)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._results.close()
        with suppress(OSError):
            self._requests.close()
        self._process.wait()

    def send(self, block: object) -> None:
        """Give the worker a block; its last result has been received."""
        try:
            for content in (*self._start, block):
                pickle.dump(content, self._requests, pickle.HIGHEST_PROTOCOL)
            self._requests.flush()
        except BrokenPipeError:
            raise self._ended() from None
        self._start = ()

    def receive(self) -> Any:
        """Wait for the result of the block that was sent; the error of the function is raised here."""
        try:
            succeeded, result = pickle.load(self._results)
        except (EOFError, pickle.UnpicklingError):
            raise self._ended() from None
        if not succeeded:
            raise result
        return result

    def _ended(self) -> ChildProcessError:
        """Make the error for a worker that has ended."""
        status = self._process.wait()
        reason = f"signal {-status}" if status < 0 else f"status {status}"
        return ChildProcessError(
            f"a worker process ended with {reason}; if memory is short, let this command use fewer cores"
        )


def serve() -> None:
    """Apply the function that the parent sends to the blocks that follow, until the pipe is closed."""
    requests, results = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what the function prints must not come between the results
    Thread(target=_end_with_parent, args=[os.getppid()], daemon=True).start()
    try:
        function = pickle.load(requests)
        while True:
            block = pickle.load(requests)
            pickle.dump(_apply(function, block), results, pickle.HIGHEST_PROTOCOL)
            results.flush()
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        os._exit(0)  # the parent has ended, perhaps in the middle of a block


def _end_with_parent(parent: int) -> None:
    """End this process once its parent is another one; on Windows it never is."""
    while os.getppid() == parent:
        time.sleep(PARENT_INTERVAL_S)
    os._exit(0)


def _apply(function: Callable[[Any], Any], block: Any) -> tuple[bool, Any]:
    """Return whether the function succeeded, and its result or error."""
    try:
        return True, function(block)
    except Exception as error:
        return False, error
