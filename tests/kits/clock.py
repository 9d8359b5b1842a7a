"""A clock that tests set."""


class Clock:
    """A clock that each call of ``work`` puts forward by the next of ``seconds``."""

    def __init__(self, seconds: list[float]) -> None:
        self.now, self.seconds = 100.0, iter(seconds)

    def perf_counter(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += next(self.seconds)
