"""Timing with warm-up, several repeats, a monotonic clock and a synchronised device."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from compare.system.cpu_share import CpuMeter
from compare.system.device import synchronize
from compare.system.energy import EnergyMeter
from compare.system.memory import gpu_memory_in_use, peak_memory_bytes, reset_peak_memory

Workload = Callable[[], object]
"""Repeatable work to be timed."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times of the repeats of some work, and how much work one repeat is."""

    sentences: int
    """Sentences per repeat."""
    tokens: int
    """Tokens per repeat; for decoding the target tokens, end of sentence included."""
    seconds: list[float]
    """Seconds of each repeat."""
    cpu_shares: list[float] = field(default_factory=list)
    """Share of the processor in each repeat, see ``CpuMeter``; empty if it was not measured."""

    @property
    def cpu_share(self) -> float | None:
        """Median share of the processor over the repeats."""
        return statistics.median(self.cpu_shares) if self.cpu_shares else None

    @property
    def sentences_per_s(self) -> float:
        """Median sentences per second over the repeats."""
        return self.sentences / statistics.median(self.seconds)

    @property
    def tokens_per_s(self) -> float:
        """Median tokens per second over the repeats."""
        return self.tokens / statistics.median(self.seconds)


class TimedRepeat(NamedTuple):
    """Cost of one repeat of some work."""

    seconds: float
    joules: float | None
    """Energy of processor and GPU; None where it cannot be read."""
    peak_memory_bytes: int | None
    """What the work needed on a GPU beyond the tensors that were there before it.

    None on a processor: its process keeps freed memory for speed, so that its peak is that of all works.
    """
    cpu_share: float
    """Share of the processor, see ``CpuMeter``."""


def time_in_turn(
    works: Sequence[Workload],
    device: torch.device,
    *,
    repeats: int,
    warm_ups: Sequence[Workload] | None = None,
) -> Iterator[tuple[int, TimedRepeat]]:
    """Warm each workload up, then run all of them in turn, ``repeats`` times.

    The workloads take turns so that a change in the speed of the machine affects all of them alike.

    Args:
        works: what to time.
        device: where it runs.
        repeats: timed repeats of each workload.
        warm_ups: work that warms up; by default each workload itself, once.

    Yields:
        The index in ``works`` and the cost of each timed repeat.
    """
    for work in works if warm_ups is None else warm_ups:
        work()
    energy, processor = EnergyMeter(device), CpuMeter()
    for _ in range(repeats):
        for index, work in enumerate(works):
            before = _restart_gpu_peak(device)
            energy.take()
            processor.take()
            seconds = timed(work, device)
            share = processor.take()
            peak = None if before is None else peak_memory_bytes(device) - before
            yield index, TimedRepeat(seconds, energy.take(), peak, share)


def _restart_gpu_peak(device: torch.device) -> int | None:
    """Restart the measurement of a GPU's peak; return the bytes in use, None on a processor."""
    if device.type != "cuda":
        return None
    reset_peak_memory(device)
    return gpu_memory_in_use(device)


def best_of(work: Workload, device: torch.device, *, repeats: int = 1, seconds: float = 0.0) -> float:
    """Time the fastest of several runs of ``work``, after one to warm up.

    It takes the minimum, not the median, because every disturbance makes a run slower.

    Args:
        work: what to time.
        device: where it runs.
        repeats: timed runs at least.
        seconds: time that the timed runs take together at least.
    """
    work()
    times: list[float] = []
    while len(times) < repeats or sum(times) < seconds:
        times.append(timed(work, device))
    return min(times)


def percentile(values: Sequence[float], share: float) -> float:
    """Compute the value below which ``share`` (0 to 1) of the values lie, interpolated."""
    return float(np.quantile(values, share))


def timed(work: Workload, device: torch.device) -> float:
    """Measure the seconds of one run of ``work``; wait for the accelerator before and after it."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start
