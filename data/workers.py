"""Work on blocks of text in several processes, with results in the order of the blocks."""

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from threading import Thread, current_thread, main_thread
from types import ModuleType
from typing import Any, TypeVar

SERIAL_BLOCKS = 20
"""Blocks that are worked on in this process before others are started: small corpora need none."""
SAFE_PATH = "PYTHONSAFEPATH"
"""The variable by which a new process imports nothing from the working directory, such as a ``random.py``."""
MAX_WORKERS = 8
"""More workers would wait for the process that reads."""

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
        workers = worker_count()
    first = next(remaining, None)
    if first is None:
        return
    blocks = chain([first], remaining)
    if workers == 1:
        yield from map(function, blocks)
        return
    # Spawned, since a fork copies the threads' locks, but not the threads that would release them.
    context = get_context("spawn")
    with _starting():  # the resource tracker
        pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(function,))
    try:
        pending = deque[Future[Result]]()
        for block in blocks:
            with _starting():
                pending.append(pool.submit(_apply, block))
            if len(pending) > workers:
                yield pending.popleft().result()
        for future in pending:
            yield future.result()
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process was ended from outside; if memory is short, let this command use fewer cores"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _starting() -> Iterator[None]:
    """Hide the user's script and folder from a new process; let signals wait for the end of a block.

    A process whose start is broken off prints a traceback.
    """
    main, received = sys.modules["__main__"], list[int]()
    is_main = current_thread() is main_thread()  # in another one Python sets no handlers
    handled = [each for each in signal.Signals if is_main and callable(signal.getsignal(each))]
    before = {each: signal.signal(each, lambda number, _: received.append(number)) for each in handled}
    sys.modules["__main__"], safe_path = ModuleType("__main__"), os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if safe_path is None:
            del os.environ[SAFE_PATH]
        for signum, handler in before.items():
            signal.signal(signum, handler)
        for number in received:
            signal.raise_signal(number)


_function: Callable[[Any], Any]
"""The function of this process, if it is a worker."""


def _begin(function: Callable[[Any], Any]) -> None:
    """Prepare a worker: Ctrl-C is for its parent alone, without which it ends."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _apply(block: Any) -> Any:
    return _function(block)
