"""Fake clock."""

from collections.abc import Sequence


class Clock:
    """Replacement of ``time``; each call of ``work`` advances it by the next of ``seconds``."""

    def __init__(self, seconds: Sequence[float] = ()) -> None:
        self.now, self.seconds = 100.0, iter(seconds)

    def perf_counter(self) -> float:
        return self.now

    def thread_time(self) -> float:
        """The thread runs all the time."""
        return self.now

    def work(self) -> None:
        self.pass_time(next(self.seconds))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
