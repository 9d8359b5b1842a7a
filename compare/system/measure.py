"""Measurement of memory, energy, time and the share of the processor; peak FLOP/s of GPUs."""

import ctypes
import gc
import logging
import math
import os
import re
import statistics
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from compare.system.device import device_name, synchronize
from compare.system.log import track
from data.files import write_atomically

logger = logging.getLogger(__name__)

# Peak memory of the GPU or of this process, and the memory of this machine.


def physical_memory_bytes() -> int | None:
    """Return the size of this machine's memory in bytes; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # AttributeError: Windows
        return None


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of the peak, so that a run does not report that of an earlier run.

    Memory that earlier work has freed goes back to the system first: ``tune_cpu`` keeps it in the process.
    What comes next is slowed for a moment, as it takes it anew; so a timed repeat is no place for this.
    """
    if device.type == "cuda":
        # Statistics of a device other than the first exist only afterwards.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)
        return
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc can; where it cannot, freed memory counts as used
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):  # only Linux can; elsewhere the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the memory in use now


def tensor_bytes(*holders: nn.Module | torch.optim.Optimizer) -> int:
    """Return the size of the weights and buffers of modules and of states of optimizers; shared ones once."""
    tensors: list[Tensor] = []
    for holder in holders:
        if isinstance(holder, nn.Module):
            tensors += [*holder.parameters(), *holder.buffers()]
        else:
            states = holder.state.values()
            tensors += [value for state in states for value in state.values() if isinstance(value, Tensor)]
    storages = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}
    return sum(storages.values())


def peak_memory_bytes(device: torch.device) -> int | None:
    """Return the peak bytes since ``reset_peak_memory``, of the GPU if ``device`` is one; None on Windows."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        if sys.platform == "win32":
            return None
        import resource  # not on Windows

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else 1024 * largest


# Energy used by processor and GPU, where the machine lets it be read.


POWERCAP = Path("/sys/class/powercap")
"""Folder of the energy counters of the processor packages (RAPL) on Linux; often only root can read them."""
JouleCounter = Callable[[], float]
"""Returns joules since some time in the past."""


class EnergyMeter:
    """Sum of the energy counters of the hardware that trains: the processor packages and the GPU."""

    def __init__(self, device: torch.device) -> None:
        self._counters = list(_packages())
        if device.type == "cuda":
            gpu = list(_gpu(device))
            self._counters = [*self._counters, *gpu] if gpu else []  # a sum without the GPU would mislead
        self._before = [counter() for counter in self._counters]

    def take(self) -> float | None:
        """Return the joules since the last call; None if they cannot be read."""
        now = [counter() for counter in self._counters]
        used = sum(now) - sum(self._before)
        self._before = now
        return used if self._counters else None


def _packages() -> Iterator[JouleCounter]:
    """Find the counter of each processor package, which includes its parts such as ``intel-rapl:0:1``."""
    for folder in sorted(POWERCAP.glob("intel-rapl:*")):
        if folder.name.count(":") == 1:
            with suppress(OSError, ValueError):
                yield _package(folder)


def _package(folder: Path) -> JouleCounter:
    """Make the counter of one package; the file's number restarts at 0 after minutes of full load."""
    span = int((folder / "max_energy_range_uj").read_text()) + 1
    last, total = int((folder / "energy_uj").read_text()), 0

    def read() -> float:
        nonlocal last, total
        now = int((folder / "energy_uj").read_text())
        total += (now - last) % span
        last = now
        return total / 1e6

    return read


def _gpu(device: torch.device) -> Iterator[JouleCounter]:
    """Find the counter of a GPU; needs NVIDIA's library (``pip install 'attnbench[energy]'``)."""
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(device).uuid
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # older cards have none
            yield lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


# Share of the processor that this process really had, to tell disturbed timings from sound ones.


TASKS = Path("/proc/self/task")
"""On Linux, one folder per thread; its ``schedstat`` begins with nanoseconds of running and of waiting."""


class CpuMeter:
    """Share of the processor between two calls of ``take``.

    It is the smaller of two shares:

    - running time of all threads over their running and waiting time, by the kernel's run queues (Linux
      only): less than 1 where other processes took their turn;
    - CPU time of the calling thread over wall time: less than 1 also where a hypervisor took the processor
      away, which the guest's run queues do not show. This thread either computes or spins until the other
      threads or the GPU are done, so it has no reason to rest.

    CPU time over wall time and *all* threads would be no measure: threads rest in every part of the work that
    is not parallel, on an idle machine too.
    """

    def __init__(self) -> None:
        self._before = self._now()

    def take(self) -> float:
        """Return the share since the last call, from 0 to 1."""
        wall, cpu, threads = now = self._now()
        wall_before, cpu_before, threads_before = self._before
        self._before = now
        shares = [1.0]
        if wall > wall_before:
            shares.append((cpu - cpu_before) / (wall - wall_before))
        spent = [
            (running - before[0], waiting - before[1])
            for thread, (running, waiting) in threads.items()
            for before in [threads_before.get(thread, (0, 0))]
        ]
        running, waiting = (sum(column) for column in zip(*spent, strict=True)) if spent else (0, 0)
        if running > 0:
            shares.append(running / (running + waiting))
        return min(shares)

    @staticmethod
    def _now() -> tuple[float, float, dict[str, tuple[int, int]]]:
        """Read the clock, the CPU time of this thread, and (running, waiting) of each thread by its id."""
        threads = {}
        for path in TASKS.glob("*/schedstat"):
            try:
                running, waiting, _ = path.read_text().split()
                threads[path.parent.name] = (int(running), int(waiting))
            except (OSError, ValueError):  # the thread has ended, or the kernel keeps no such record
                continue
        return time.perf_counter(), time.thread_time(), threads


class SharedThreads:
    """Fewer threads of torch while other programs use the processor, and all again when they are gone.

    Every operation waits for its slowest thread. Where another program takes one of two cores, training with
    one thread is about twice as fast as with two (docs/speed.md). A number that the user's OMP_NUM_THREADS
    names is kept: another one rounds differently.
    """

    WINDOW_S, TRIAL_S, MAX_TRIAL_S = 2.0, 30.0, 480.0
    """Time over which the share is measured; time until all threads are tried again, doubled if in vain."""
    SPARE = 0.2
    """What may be missing of a thread before it is given up: small programs come and go."""
    _told: ClassVar[bool] = False

    def __init__(self, device: torch.device, *, fixed: bool) -> None:
        self.all, self.fixed = torch.get_num_threads(), fixed or "OMP_NUM_THREADS" in os.environ
        self.active = device.type == "cpu" and self.all > 1
        self._meter, self._since, self._wait = CpuMeter(), time.perf_counter(), self.TRIAL_S
        self._trial_at = 0.0

    def adapt(self) -> None:
        """Choose the number of threads by the share of the processor; to be called after every update."""
        now = time.perf_counter()
        if not self.active or now < self._since + self.WINDOW_S:
            return
        share, threads, self._since = self._meter.take(), torch.get_num_threads(), now
        kept = max(1, int(threads * share + self.SPARE))
        if kept < threads:
            self._tell(share, kept)
        if self.fixed:
            return
        if kept < threads:
            torch.set_num_threads(kept)
            self._trial_at, self._wait = now + self._wait, min(2 * self._wait, self.MAX_TRIAL_S)
        elif threads == self.all:
            self._wait = self.TRIAL_S
        elif now > self._trial_at:
            torch.set_num_threads(self.all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.active and not self.fixed:
            torch.set_num_threads(self.all)

    def _tell(self, share: float, kept: int) -> None:
        """Say, once in this process, that the processor is shared, and what follows."""
        if self._told or (self.fixed and share > 0.6):
            return
        SharedThreads._told = True
        busy = f"other programs use the processor (this one's share: {share:.0%})"
        if self.fixed:
            logger.warning(f"{busy}: training may be faster with OMP_NUM_THREADS={kept}")
        else:
            logger.info(
                f"{busy}: {kept} of {self.all} threads until they end; OMP_NUM_THREADS fixes the number"
            )


# Timing with warm-up, several repeats, a monotonic clock and a synchronised device.


Workload = Callable[[], object]
"""Repeatable work to be timed."""


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
    """Energy of processor and GPU, likewise; None where it cannot be read."""
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


def time_in_turn(
    works: Sequence[Workload],
    device: torch.device,
    *,
    repeats: int,
    seconds: float = 0.0,
    name: str = "timing",
    warm_ups: Sequence[Workload] | None = None,
) -> Iterator[tuple[int, TimedRepeat]]:
    """Warm each workload up, then run all of them in turn, ``repeats`` times.

    The workloads take turns so that a change in the speed of the machine affects all of them alike.
    ``ReferenceWork`` after each repeat tells its speed.

    Args:
        works: what to time.
        device: where it runs.
        repeats: timed repeats of each workload.
        seconds: what one repeat lasts at least, in which its work is done as often as it takes.
        name: of all of this, for the progress, which moves between two workloads.
        warm_ups: work that warms up; by default each workload itself, once.

    Yields:
        The index in ``works`` and the cost of each timed repeat.
    """
    for work in track(list(works if warm_ups is None else warm_ups), f"{name}, warming up"):
        work()
    energy, processor, reference = EnergyMeter(device), CpuMeter(), ReferenceWork(device)
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
        peak = (peak_memory_bytes(device) or 0) - before if device.type == "cuda" else None
        mean_joules = None if joules is None else joules / len(times)
        yield (
            index,
            TimedRepeat(statistics.fmean(times), mean_joules, peak, share, timed(reference, device)),
        )


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
