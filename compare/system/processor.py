"""Processors of this machine: the usable cores, and the share of them that this process really had."""

import os
import time
from pathlib import Path


def usable_processors() -> list[int]:
    """List the logical processors that this process may use."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return sorted(usable)


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
