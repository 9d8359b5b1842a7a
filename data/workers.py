"""Work on blocks of text in several processes, with results in the order of the blocks."""

import ctypes
import os
import platform
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from threading import Thread, current_thread, main_thread
from types import ModuleType
from typing import Any, TypeVar

SERIAL_BLOCKS = 20
"""Blocks for this process before others start: small corpora need none."""
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


def return_freed_memory() -> None:
    """Give freed memory back to the system: glibc keeps it, after SentencePiece up to 1 GB."""
    if platform.libc_ver()[0] == "glibc":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def worker_count() -> int:
    """Return the workers for each of the ``torchrun`` processes on this machine."""
    return max(1, min(available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1)), MAX_WORKERS))


def map_blocks(
    function: Callable[[Block], Result], blocks: Iterable[Block], *, workers: int | None = None
) -> Iterator[Result]:
    """Apply a function to each block; the results come in the order of the blocks.

    Function, blocks and results can be pickled. At most one block per worker is read ahead. ``workers`` are
    further processes, from the first block on; None: one per core, after ``SERIAL_BLOCKS`` blocks; 1: none.
    Raises ChildProcessError if a worker was ended from outside, as by lack of memory.
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
            "a worker process was killed; if memory is short, let this command use fewer cores"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _starting() -> Iterator[None]:
    # A new process would run the user's script again, and print a traceback if a signal stopped its start.
    main, received = sys.modules["__main__"], list[int]()
    is_main = current_thread() is main_thread()  # only the main thread may set handlers
    handled = [number for number in signal.Signals if is_main and callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda signum, _: received.append(signum)) for number in handled}
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


def _begin(function: Callable[[Any], Any]) -> None:
    # Ctrl-C is handled by the parent, with which the worker ends.
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
