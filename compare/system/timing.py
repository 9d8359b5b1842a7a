"""Timing: warm-up, several repeats in turn, a monotonic clock, the device synchronised."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from compare.system.energy import EnergyMeter
from compare.system.memory import peak_memory_bytes, reset_peak_memory

Workload = Callable[[], object]
"""What is timed; it can be done again and again."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Raw repeats of some work: what medians and spreads are taken from."""

    sentences: int
    """Done in one repeat."""
    tokens: int
    """Counted in one repeat; of decoding the target tokens written, end of sentence included."""
    seconds: list[float]
    """Of each repeat."""

    @property
    def sentences_per_s(self) -> float:
        """Median over the repeats."""
        return self.sentences / statistics.median(self.seconds)

    @property
    def tokens_per_s(self) -> float:
        """Median over the repeats."""
        return self.tokens / statistics.median(self.seconds)


class TimedRepeat(NamedTuple):
    """What one repeat of some work took."""

    seconds: float
    joules: float | None
    """By processor and GPU; None where they cannot be read."""
    peak_memory_bytes: int


def time_in_turn(
    works: Sequence[Workload], device: torch.device, *, repeats: int
) -> Iterator[tuple[int, TimedRepeat]]:
    """Do each work once to warm up, then ``repeats`` times in turn; yields its place and what the turn took.

    In turn, so that a machine that gets slower or busier meanwhile does so for all of them.
    """
    for work in works:
        work()
    energy = EnergyMeter(device)
    for _ in range(repeats):
        for place, work in enumerate(works):
            reset_peak_memory(device)
            energy.take()
            seconds = timed(work, device)
            yield place, TimedRepeat(seconds, energy.take(), peak_memory_bytes(device))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie, interpolated."""
    return float(np.quantile(values, share))


def timed(work: Workload, device: torch.device) -> float:
    """Seconds that ``work`` takes, the accelerator's queue emptied before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
