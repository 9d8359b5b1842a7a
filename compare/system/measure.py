"""Memory, energy, and the share of the processor that this process has."""

import gc
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch

from compare.system.device import clock_mhz
from data.workers import return_freed_memory

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
    return_freed_memory()
    with suppress(OSError):  # only Linux can; elsewhere the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the memory in use now


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


# Energy and clock of the GPU, by NVIDIA's library (``pip install 'attnbench[energy]'``).


SM_CLOCK = 1
"""Number that the library has for the clock of the processors on the card."""
THROTTLING = {
    **{0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost"},
    **{0x20: "heat", 0x40: "heat", 0x80: "power brake", 0x100: "display clocks"},
}
"""Reasons of a lowered clock by the bit that the library has for them; 0x1 means that the card is idle."""


class Clock(NamedTuple):
    """Clock of the device while it works."""

    mhz: float | None
    """None where it cannot be read."""
    throttling: frozenset[str] = frozenset()
    """Reasons why a GPU has lowered it."""


def _ask_nvml(device: torch.device, name: str, *arguments: object) -> Any:
    """Return the answer of a function of the library about a GPU; None where there is none."""
    if device.type == "cuda":
        with suppress(ImportError):
            import pynvml

            with suppress(pynvml.NVMLError):  # such as of an older card
                pynvml.nvmlInit()
                uuid = torch.cuda.get_device_properties(device).uuid
                handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
                return getattr(pynvml, name)(handle, *arguments)
    return None


def read_clock(device: torch.device) -> Clock:
    """Read the clock of the device now."""
    if device.type == "cpu":
        return Clock(clock_mhz())
    bits = _ask_nvml(device, "nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    reasons = frozenset(reason for bit, reason in THROTTLING.items() if bits & bit)
    return Clock(_ask_nvml(device, "nvmlDeviceGetClockInfo", SM_CLOCK), reasons)


class EnergyMeter:
    """Energy that the GPU uses between two calls of ``take``, other programs included."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = _read_millijoules(device)

    def take(self) -> float | None:
        """Return the joules since the last call; None if they cannot be read, as on a processor."""
        before, self._before = self._before, _read_millijoules(self._device)
        return None if before is None or self._before is None else (self._before - before) / 1e3


def _read_millijoules(device: torch.device) -> float | None:
    """Read the counter of energy of a GPU."""
    millijoules: float | None = _ask_nvml(device, "nvmlDeviceGetTotalEnergyConsumption")
    return millijoules


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
    one thread is about twice as fast as with two (docs/scale.md). A number that the user's OMP_NUM_THREADS
    or MKL_NUM_THREADS names is kept: another one rounds differently.
    """

    WINDOW_S, TRIAL_S, MAX_TRIAL_S = 2.0, 30.0, 480.0
    """Time over which the share is measured; time until all threads are tried again, doubled if in vain."""
    SPARE = 0.2
    """What may be missing of a thread before it is given up: small programs come and go."""
    _told: ClassVar[bool] = False

    def __init__(self, device: torch.device, *, fixed: bool) -> None:
        chosen = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & os.environ.keys()
        self.all, self.fixed = torch.get_num_threads(), fixed or bool(chosen)
        self.active = device.type == "cpu" and self.all > 1
        self._meter, self._since, self._wait = CpuMeter(), time.perf_counter(), self.TRIAL_S
        self._trial_at = 0.0

    def adapt(self) -> None:
        """Choose the number of threads by the share of the processor; to be called after every update."""
        now = time.perf_counter()
        if not self.active or now < self._since + self.WINDOW_S:
            return
        share, threads, self._since = self._meter.take(), torch.get_num_threads(), now
        useful = max(1, int(threads * share + self.SPARE))
        if useful < threads:
            self._tell(share, useful)
        if self.fixed:
            return
        if useful < threads:
            torch.set_num_threads(useful)
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

    def _tell(self, share: float, useful: int) -> None:
        """Say, once in this process, that the processor is shared, and what follows."""
        if self._told or (self.fixed and share > 0.6):
            return
        SharedThreads._told = True
        busy = f"other programs use the processor (this one's share: {share:.0%})"
        if self.fixed:
            logger.warning(f"{busy}: training may be faster with OMP_NUM_THREADS={useful}")
        else:
            logger.info(
                f"{busy}: {useful} of {self.all} threads until they end; OMP_NUM_THREADS fixes the number"
            )
