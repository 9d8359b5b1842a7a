"""Processors of this machine: the usable cores, and the share of them that this process really had."""

import os
import platform
import re
import statistics
import time
from pathlib import Path

FAST_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Flags in /proc/cpuinfo of processors with bfloat16 products in hardware (x86 and Arm names)."""
FAST_BF16_GPU = (8, 0)
"""Lowest compute capability of GPUs with bfloat16 products in hardware."""
CPUINFO = Path("/proc/cpuinfo")


def usable_processors() -> list[int]:
    """List the logical processors that this process may use."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return sorted(usable)


def processor() -> tuple[str, set[str]]:
    """Return the processor's name and feature flags; no flags except on Linux."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    label = name[1] if name else platform.processor() or platform.machine() or "cpu"
    return label, set(flags[1].split() if flags else ())


def clock_mhz() -> float | None:
    """Return the median of the clocks that Linux reports for the processors now; None elsewhere."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    clocks = [float(clock) for clock in re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE)]
    return statistics.median(clocks) if clocks else None


# Share of the processor that this process really had, to tell disturbed timings from sound ones.


TASKS = Path("/proc/self/task")
"""On Linux, one folder per thread; its ``schedstat`` begins with nanoseconds of running and of waiting."""
DISTURBED = 0.9
"""Share below which a timing counts as disturbed."""


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


def describe_share(share: float) -> str:
    """Format a share: "97%", or "62%, disturbed", in which no share is rounded up to that of the others."""
    percent, limit = round(100 * share), round(100 * DISTURBED)
    return f"{percent}%" if share >= DISTURBED else f"{min(percent, limit - 1)}%, disturbed"
