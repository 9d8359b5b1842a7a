"""The clock: work timed in turns, decoding, latency, peak memory, and a device's yardstick."""

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from compare.energy import EnergyMeter
from compare.precision import DTYPES
from compare.search import Hypothesis
from compare.translate import Translator

YARDSTICK_SIZE = {"cpu": 1024, "cuda": 8192}
Work = Callable[[], object]
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


class Turn(NamedTuple):
    """What one repeat of some work took."""

    seconds: float
    joules: float | None
    """By processor and GPU; None where they cannot be read."""
    peak_memory_bytes: int


def take_turns(works: Sequence[Work], device: torch.device, *, repeats: int) -> Iterator[tuple[int, Turn]]:
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
            seconds = _timed(work, device)
            yield place, Turn(seconds, energy.take(), peak_memory_bytes(device))


def time_decoding(translator: Translator, lines: Sequence[str], *, beam_size: int, repeats: int) -> Speed:
    """Translate ``lines`` ``repeats`` times after one warm-up; the time includes splitting into tokens."""
    found: list[Hypothesis] = []

    def translate() -> None:
        found[:] = translator.search(lines, beam_size)

    seconds = [turn.seconds for _, turn in take_turns([translate], translator.device, repeats=repeats)]
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in found)
    return Speed(sentences=len(lines), tokens=tokens, seconds=seconds)


def time_latency(translator: Translator, lines: Sequence[str], *, beam_size: int) -> list[float]:
    """Milliseconds for each line translated alone, after one warm-up."""
    translator.search(lines[:1], beam_size)
    searches = [partial(translator.search, [line], beam_size) for line in lines]
    return [1e3 * _timed(search, translator.device) for search in searches]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie, interpolated."""
    return float(np.quantile(values, share))


def matmul_flops_per_s(device: torch.device, precision: str, seconds: float = 0.3) -> float:
    """The device's yardstick: operations per second of a square matrix product, best of some."""
    size = YARDSTICK_SIZE[device.type]
    dtype = DTYPES[precision]
    left, right = (
        torch.randn(size, size, generator=torch.Generator().manual_seed(0)).to(device, dtype) for _ in "ab"
    )
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        best = min(best, _timed(lambda: left @ right, device))
    return float(2 * size**3 / best)


def reset_peak_memory(device: torch.device) -> None:
    """Begin to measure the peak anew, so that a row does not show an earlier row's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # elsewhere the peak of the whole process is all there is
        Path("/proc/self/clear_refs").write_text("5")  # Linux: sets VmHWM back to what is used now


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory held since ``reset_peak_memory``: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _timed(work: Work, device: torch.device) -> float:
    """Seconds that ``work`` takes, the accelerator's queue emptied before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
