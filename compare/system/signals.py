"""Let Ctrl-C and SIGTERM end work at a safe place instead of in the middle."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """Work ended on a signal, its state saved; ``signum`` says which."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum


class StopRequest:
    """Whether a signal has asked to stop, and which."""

    signum: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first SIGINT or SIGTERM instead of dying of it; a second one acts at once."""
    request = StopRequest()
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def note(signum: int, _: FrameType | None) -> None:
        request.signum = signum
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        for signum in before:
            signal.signal(signum, note)
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
