"""What the tests of the benchmark share: a row with every field, and a clock that work puts forward."""

from typing import Any

from compare.benchmark.measurement import Measurement

FACTS: dict[str, Any] = {
    "model": "a",
    "phase": "train",
    "precision": "fp32",
    "unit": "tokens/s",
    "params": 1_500_000,
    "flops_per_token": 4e6,
    "sentences": 20,
    "tokens": 600,
    "seconds": [2.0, 4.0, 3.0],
}


def row(**changes: Any) -> Measurement:
    return Measurement(**{**FACTS, **changes})


class Clock:
    """Stands in for ``time``: goes forward only when told to."""

    def __init__(self) -> None:
        self.now = 50.0

    def perf_counter(self) -> float:
        return self.now
