"""Timing with warm-up, several repeats, a monotonic clock and a synchronised device; peak FLOP/s of GPUs."""

import math
import os
import re
import statistics
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
import torch
from msgspec import Meta
from torch import Tensor, nn

from compare.system.device import DTYPES, Machine, synchronize, this_machine
from compare.system.log import track
from compare.system.measure import (
    Clock,
    CpuMeter,
    EnergyMeter,
    peak_memory_bytes,
    read_clock,
    reset_peak_memory,
)
from data.files import write_atomically

Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Conditions in the repeats of some work."""

    cpu_shares: list[Share] = field(default_factory=list)
    """Share of the processor in each repeat, see ``CpuMeter``; empty if it was not measured."""
    reference_s: list[float] = field(default_factory=list)
    """Seconds of ``ReferenceWork`` after each repeat; empty if it was not timed."""

    @property
    def cpu_share(self) -> float | None:
        """Median share of the processor over the repeats."""
        return statistics.median(self.cpu_shares) if self.cpu_shares else None


@dataclass(frozen=True, kw_only=True)
class Speed(Repeats):
    """Times of the repeats of some work, and how much work one repeat is."""

    sentences: Annotated[int, Meta(ge=0)]
    """Sentences per repeat."""
    tokens: Annotated[int, Meta(ge=0)]
    """Tokens per repeat; for decoding the target tokens, end of sentence included."""
    seconds: Annotated[list[Annotated[float, Meta(gt=0)]], Meta(min_length=1)]
    """Seconds of each repeat, the mean of the times that it was done."""

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
    """Memory that the work needed on a GPU, with its model and optimizer.

    None on a processor: its process keeps freed memory for speed, so that its peak is that of all works.
    """
    cpu_share: float
    """Share of the processor, see ``CpuMeter``."""
    reference_s: float
    """Seconds of ``ReferenceWork`` right after it."""
    clock: Clock
    """Clock in that reference work."""


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attnbench")
"""Folder of the user that keeps the best time of ``ReferenceWork``."""


def conditions_of(repeats: Sequence[TimedRepeat]) -> dict[str, Any]:
    """Return the fields of ``Repeats``."""
    return {
        "cpu_shares": [repeat.cpu_share for repeat in repeats],
        "reference_s": [repeat.reference_s for repeat in repeats],
    }


PRODUCT_SIZE = {"cpu": 1_024, "cuda": 8_192}
"""Rows and columns of the matrices of large products, by the type of the device."""
PRODUCT_S, GPU_REFERENCE_S, GPU_WARM_UP_S = 0.1, 0.05, 3.0
"""Least seconds of a measurement of products, and on a GPU of the reference work and of warming up."""


def _random_matrix(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Draw a matrix of large products by random numbers of its own."""
    draws, size = torch.Generator(device).manual_seed(1), PRODUCT_SIZE[device.type]
    return torch.randn(size, size, generator=draws, device=device).to(dtype)


def product_gflops(device: torch.device, precision: str, seconds: float = PRODUCT_S) -> float:
    """Measure the billion operations per second of a large matrix product: the limit of every model.

    Args:
        device: where it is computed.
        precision: fp32 or bf16.
        seconds: least time of the measurement, of which the fastest product counts.
    """
    matrix = _random_matrix(device, DTYPES[precision])
    return 2e-9 * len(matrix) ** 3 / best_of(lambda: matrix @ matrix, device, seconds=seconds)


class ReferenceWork:
    """A fixed piece of work whose time tells how fast the machine is now.

    On a processor it takes about 50 ms of one core: one matrix product, as those of a Transformer, and many
    small steps that wait for each other, as those of a recurrent layer. On a GPU, where these would measure
    Python, it is the mean of so many large bf16 products that they take 50 ms.
    """

    STEPS, STATE = 250, (64, 256)

    def __init__(self, device: torch.device) -> None:
        """Make its matrices and warm up."""
        self._device, self._products = device, 1
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._matrix, (rows, size) = _random_matrix(device, dtype), self.STATE
        self._start, self._weights = self._matrix[:rows, :size], self._matrix[:size, :size] / size**0.5
        self()
        if device.type == "cuda":
            operations = 1e9 * product_gflops(device, "bf16") * GPU_REFERENCE_S
            self._products = 1 + math.ceil(operations / (2 * len(self._matrix) ** 3))

    @torch.inference_mode()
    def __call__(self) -> Clock | None:
        """Do the work; on a GPU, also read its clock while it is busy."""
        for _ in range(self._products):
            torch.mm(self._matrix, self._matrix)
        if self._device.type == "cuda":
            return read_clock(self._device)
        state = self._start
        for _ in range(self.STEPS):
            state = torch.tanh(state @ self._weights)
        return None

    def measure(self) -> tuple[float, Clock]:
        """Return the seconds of the work, and the clock meanwhile."""
        clocks: list[Clock | None] = []
        seconds = timed(lambda: clocks.append(self()), self._device) / self._products
        return seconds, clocks[0] or read_clock(self._device)


def measure_machine(device: torch.device, repeats: Iterable[TimedRepeat]) -> Machine:
    """Describe the machine of a timing: with the rates of its products, and the clock in the repeats."""
    clocks = [repeat.clock for repeat in repeats]
    reasons = sorted(frozenset().union(*(clock.throttling for clock in clocks)))
    return replace(
        this_machine(device),
        clock_mhz=statistics.median([clock.mhz for clock in clocks if clock.mhz] or [0.0]) or None,
        throttling=", ".join(reasons) or None,
        fp32_gflops=product_gflops(device, "fp32"),
        bf16_gflops=product_gflops(device, "bf16"),
    )


def best_reference(machine: Machine, seconds: float) -> float:
    """Return the least seconds of ``ReferenceWork`` on this machine so far, ``seconds`` included.

    They are kept in ``CACHE``, by all that ``measure_machine`` tells; its rates, which are never quite the
    same, by the nearest power of two.
    """
    path, best = CACHE / "reference.json", dict[str, float]()
    rates = (rate and 2 ** round(math.log2(rate)) for rate in (machine.fp32_gflops, machine.bf16_gflops))
    key = "; ".join(map(str, (machine, machine.cores, machine.environment, *rates)))
    with suppress(OSError, msgspec.MsgspecError):  # not there yet, or damaged
        best = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    if seconds < best.get(key, math.inf):
        best[key] = seconds
        with suppress(OSError):  # a user may have no home folder
            write_atomically(path, msgspec.json.encode(best))
    return best[key]


class Timeable(Protocol):
    """Repeatable work to be timed."""

    @property
    def holders(self) -> Sequence[nn.Module | torch.optim.Optimizer]:
        """The model, and the optimizer in training: they are on a GPU only while the work is done."""

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
    ``ReferenceWork`` after each repeat tells its speed. On a GPU warming up takes ``GPU_WARM_UP_S``, and what
    the other works hold is in the memory of the host.

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
        with _on_device(work, device):
            seconds_done = timed(work.warm_up, device)
            while device.type == "cuda" and seconds_done < GPU_WARM_UP_S:
                seconds_done += timed(work.warm_up, device)
    energy, processor, reference = EnergyMeter(device), CpuMeter(), ReferenceWork(device)
    timed_repeats: list[list[TimedRepeat]] = [[] for _ in works]
    for index, work in track([*enumerate(works)] * repeats, name):
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        with _on_device(work, device):
            if device.type == "cuda":
                reset_peak_memory(device)
            energy.take()
            processor.take()
            times = [timed(work, device)]
            while sum(times) < seconds:
                times.append(timed(work, device))
            share, joules = processor.take(), energy.take()
        peak = (peak_memory_bytes(device) or 0) - before if device.type == "cuda" else None
        reference_s, clock = reference.measure()
        repeat = TimedRepeat(
            seconds=statistics.fmean(times),
            joules=None if joules is None else joules / len(times),
            peak_memory_bytes=peak,
            cpu_share=share,
            reference_s=reference_s,
            clock=clock,
        )
        timed_repeats[index].append(repeat)
        report(index, len(timed_repeats[index]), repeat)
    return timed_repeats


@contextmanager
def _on_device(work: Timeable, device: torch.device) -> Iterator[None]:
    """Have what a work holds on a GPU for a block; on a processor it stays where it is."""
    if device.type != "cuda":
        yield
        return
    move(work.holders, device)
    yield
    move(work.holders, torch.device("cpu"))


def move(holders: Iterable[nn.Module | torch.optim.Optimizer], device: torch.device) -> None:
    """Move models and the states of optimizers in place; counts of updates stay where they are."""
    for holder in holders:
        if isinstance(holder, nn.Module):
            holder.to(device)
            continue
        for state in holder.state.values():
            tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
            state.update({name: tensor.to(device) for name, tensor in tensors.items() if tensor.dim()})


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
    peaks = [] if " MIG " in card else [PEAKS[pattern] for pattern in PEAKS if re.fullmatch(pattern, card)]
    tflops = peaks[0].get(precision) if peaks else None
    return None if tflops is None else 1e12 * tflops
