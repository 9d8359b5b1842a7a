"""Handling of Ctrl-C and SIGTERM: work ends at a safe point instead of in the middle."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

REPEAT_S = 0.01
"""Time after which a signal is raised again whose exception Python has ignored."""
_IGNORES_REPEATS = ContextVar("ignores_repeats", default=False)
"""Whether ``stop_on_signals`` ignores all signals but the first."""


class Interrupted(Exception):
    """The end of work, its state saved, because of signal ``signum``."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(signum, message)  # these arguments make it again in another process
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message


class Terminated(BaseException):
    """SIGTERM outside of ``stop_on_signals``; as with KeyboardInterrupt, no ``except Exception`` stops it."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise ``Terminated`` in a block, so that ``finally`` clauses clean up.

    Python ignores exceptions in ``__del__`` methods and callbacks of weak references. When SIGTERM or Ctrl-C
    arrives in one of them, it is raised again a moment later. Without effect in another thread than the main
    one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_signum: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with _repeat_ignored_signals():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _repeat_ignored_signals() -> Iterator[None]:
    """Raise SIGTERM and SIGINT again if Python could not pass their exception on."""
    hook, timers = sys.unraisablehook, list[threading.Timer]()

    def repeat(unraisable: "sys.UnraisableHookArgs") -> None:
        signum = {Terminated: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}.get(unraisable.exc_type)
        if signum is None:
            hook(unraisable)
            return
        timers.append(threading.Timer(REPEAT_S, signal.raise_signal, [signum]))
        timers[-1].start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for timer in timers:
            timer.cancel()


class StopRequest:
    """The request to stop."""

    signum: int | None = None
    """The signal; None while there was none."""


@contextmanager
def ignore_repeated_signals() -> Iterator[None]:
    """Let ``stop_on_signals`` in a block ignore all signals but the first.

    For jobs of Slurm, which sends SIGTERM both to a job that it preempts and to the step in it, and SIGKILL
    if they do not end.
    """
    token = _IGNORES_REPEATS.set(True)
    try:
        yield
    finally:
        _IGNORES_REPEATS.reset(token)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Record the first SIGINT or SIGTERM instead of acting on it; a second one acts as before.

    In a block of ``ignore_repeated_signals``, a second one has no effect.

    In another thread than the main one, where Python allows no handlers, signals keep their effect.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    ignores_repeats = _IGNORES_REPEATS.get()

    def record(signum: int, _: FrameType | None) -> None:
        request.signum = request.signum or signum
        for each, handler in before.items() if not ignores_repeats else ():
            signal.signal(each, handler)

    try:
        for signum in before:
            signal.signal(signum, record)
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
