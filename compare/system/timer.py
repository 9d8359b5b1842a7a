"""Timing with warm-up, several repeats, a monotonic clock and a synchronised device; peak FLOP/s of GPUs."""

import math
import os
import re
import statistics
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

import msgspec
import numpy as np
import torch
from msgspec import Meta

from compare.system.device import device_name, synchronize
from compare.system.log import track
from compare.system.measure import CpuMeter, EnergyMeter, peak_memory_bytes, reset_peak_memory
from data.files import write_atomically

Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times of the repeats of some work, and how much work one repeat is."""

    sentences: Annotated[int, Meta(ge=0)]
    """Sentences per repeat."""
    tokens: Annotated[int, Meta(ge=0)]
    """Tokens per repeat; for decoding the target tokens, end of sentence included."""
    seconds: Annotated[list[Annotated[float, Meta(gt=0)]], Meta(min_length=1)]
    """Seconds of each repeat, the mean of the times that it was done."""
    cpu_shares: list[Share] = field(default_factory=list)
    """Share of the processor in each repeat, see ``CpuMeter``; empty if it was not measured."""
    reference_s: list[float] = field(default_factory=list)
    """Seconds of ``ReferenceWork`` after each repeat; empty if it was not timed."""

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
    """Mean of the times that the work was done."""
    joules: float | None
    """Energy of the GPU, likewise; None where it cannot be read."""
    peak_memory_bytes: int | None
    """What the work needed on a GPU beyond the tensors that were there before it.

    None on a processor: its process keeps freed memory for speed, so that its peak is that of all works.
    """
    cpu_share: float
    """Share of the processor, see ``CpuMeter``."""
    reference_s: float
    """Seconds of ``ReferenceWork`` right after it."""


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attnbench")
"""Folder of the user that keeps the best time of ``ReferenceWork``."""


def repeat_fields(repeats: Sequence[TimedRepeat]) -> dict[str, list[float]]:
    """Return the repeats as fields of ``Speed``."""
    return {
        "seconds": [repeat.seconds for repeat in repeats],
        "cpu_shares": [repeat.cpu_share for repeat in repeats],
        "reference_s": [repeat.reference_s for repeat in repeats],
    }


class ReferenceWork:
    """A fixed piece of work, about 50 ms on one core, whose time tells how fast the machine is now.

    It is one matrix product, as those of a Transformer, and many small steps that wait for each other, as
    those of a recurrent layer.
    """

    SIZE, STEPS, STATE = 1_024, 250, (64, 256)

    def __init__(self, device: torch.device) -> None:
        """Make its matrices, by random numbers of its own, and warm up."""
        draws = torch.Generator().manual_seed(1)
        self._matrix = torch.randn(self.SIZE, self.SIZE, generator=draws).to(device)
        rows, size = self.STATE
        self._start, self._weights = self._matrix[:rows, :size], self._matrix[:size, :size] / size**0.5
        self()

    @torch.inference_mode()
    def __call__(self) -> None:
        """Do the work."""
        torch.mm(self._matrix, self._matrix)
        state = self._start
        for _ in range(self.STEPS):
            state = torch.tanh(state @ self._weights)


def best_reference(device: torch.device, seconds: float) -> float:
    """Return the least seconds of ``ReferenceWork`` on this machine so far, ``seconds`` included.

    They are kept in ``CACHE``, by processor or GPU, version of torch, and threads.
    """
    path, best = CACHE / "reference.json", dict[str, float]()
    key = f"{device_name(device)}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    with suppress(OSError, ValueError):  # not there yet, or damaged
        best = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    if seconds < best.get(key, math.inf):
        best[key] = seconds
        with suppress(OSError):  # of a user without a home
            write_atomically(path, msgspec.json.encode(best))
    return best[key]


class Timeable(Protocol):
    """Repeatable work to be timed."""

    def __call__(self) -> object:
        """Do the work."""

    def warm_up(self) -> object:
        """Do as much of it as warms up."""


def time_in_turn(
    works: Sequence[Timeable],
    device: torch.device,
    *,
    repeats: int,
    seconds: float = 0.0,
    name: str = "timing",
    report: Callable[[int, int, TimedRepeat], object] = lambda index, number, repeat: None,
) -> list[list[TimedRepeat]]:
    """Warm each work up, then do all of them in turn, ``repeats`` times.

    The works take turns so that a change in the speed of the machine affects all of them alike.
    ``ReferenceWork`` after each repeat tells its speed.

    Args:
        works: what to time.
        device: where it runs.
        repeats: timed repeats of each work.
        seconds: what one repeat lasts at least, in which its work is done as often as it takes.
        name: of all of this, for the progress, which moves between two works.
        report: called with the index of a work, the number of its repeat from 1, and the repeat.

    Returns:
        The repeats of each work.
    """
    for work in track(works, f"{name}, warming up"):
        work.warm_up()
    energy, processor, reference = EnergyMeter(device), CpuMeter(), ReferenceWork(device)
    timed_repeats: list[list[TimedRepeat]] = [[] for _ in works]
    for index, work in track([*enumerate(works)] * repeats, name):
        before = 0
        if device.type == "cuda":
            reset_peak_memory(device)
            before = torch.cuda.memory_allocated(device)
        energy.take()
        processor.take()
        times = [timed(work, device)]
        while sum(times) < seconds:
            times.append(timed(work, device))
        share, joules = processor.take(), energy.take()
        repeat = TimedRepeat(
            seconds=statistics.fmean(times),
            joules=None if joules is None else joules / len(times),
            peak_memory_bytes=(peak_memory_bytes(device) or 0) - before if device.type == "cuda" else None,
            cpu_share=share,
            reference_s=timed(reference, device),
        )
        timed_repeats[index].append(repeat)
        report(index, len(timed_repeats[index]), repeat)
    return timed_repeats


def best_of(
    work: Callable[[], object], device: torch.device, *, repeats: int = 1, seconds: float = 0.0
) -> float:
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


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Measure the seconds of one run of ``work``; wait for the accelerator before and after it."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


# Peak FLOP/s of GPUs, by their data sheets.


PEAKS: dict[str, dict[str, float]] = tomllib.loads(
    Path(__file__).with_name("peaks.toml").read_text(encoding="utf-8")
)
"""TFLOP/s by precision, by pattern of the card's name."""


def peak_flops(name: str, precision: str) -> float | None:
    """Look up the peak that model FLOPs utilisation (MFU) is relative to.

    Args:
        name: the device's name, as by ``device_name``.
        precision: precision of training.

    Returns:
        FLOP/s; None for processors, slices of a card (MIG) and unknown cards, which have no MFU.
    """
    card = name.removeprefix("NVIDIA ")
    known = [] if " MIG " in card else [PEAKS[pattern] for pattern in PEAKS if re.fullmatch(pattern, card)]
    tflops = known[0].get(precision) if known else None
    return None if tflops is None else 1e12 * tflops
