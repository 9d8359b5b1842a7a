"""Share of the processor: from made-up run queues and clocks, and of a process that must share a core."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compare.system import processor as cpu_share
from compare.system.processor import CpuMeter, describe_share


class Kernel:
    """Run queues of threads, wall time and CPU time of the calling thread."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wall, self.cpu = folder, 5.0, 2.0

    def set(self, **threads: str) -> None:
        for name, text in threads.items():
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "schedstat").write_text(text)

    def perf_counter(self) -> float:
        return self.wall

    def thread_time(self) -> float:
        return self.cpu


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path)
    monkeypatch.setattr(cpu_share, "TASKS", tmp_path)
    monkeypatch.setattr(cpu_share, "time", kernel)
    return kernel


def test_waiting_in_run_queues_lowers_the_share(kernel: Kernel):
    """The main thread never waits; one worker that rests does not count, but waits 1 s of 2."""
    kernel.set(main="1000000000 7 1", worker="5000000000 100 1")
    meter = CpuMeter()
    kernel.wall, kernel.cpu = 9.0, 6.0
    kernel.set(main="5000000000 7 1", worker="6000000000 1000000100 1", new="3000000000 0 1")
    assert meter.take() == pytest.approx((4 + 1 + 3) / (4 + 1 + 3 + 1))
    kernel.wall, kernel.cpu = 10.0, 7.0
    kernel.set(main="6000000000 7 1")
    assert meter.take() == 1.0  # only since the last call


def test_time_that_a_hypervisor_takes_lowers_the_share(kernel: Kernel):
    kernel.set(main="0 0 0")
    meter = CpuMeter()
    kernel.wall, kernel.cpu = 9.0, 5.0
    kernel.set(main="3000000000 0 9")
    assert meter.take() == 0.75


def test_without_run_queues_the_calling_thread_counts(kernel: Kernel):
    meter = CpuMeter()
    kernel.wall, kernel.cpu = 9.0, 4.0
    assert meter.take() == 0.5
    assert meter.take() == 1.0  # no time has passed
    kernel.set(ended="", other="not a number")
    kernel.wall, kernel.cpu = 10.0, 5.5
    assert meter.take() == 1.0  # coarse clocks may show more CPU time than wall time


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads can be pinned on Linux only")
def test_two_processes_on_one_core_have_about_half_of_it_each():
    code = """
import os, sys, time
from compare.system.processor import CpuMeter
os.sched_setaffinity(0, [int(sys.argv[1])])
print("ready", flush=True)
sys.stdin.readline()
meter, end = CpuMeter(), time.perf_counter() + 1.5
while time.perf_counter() < end:
    pass
print(meter.take())
"""
    core = str(min(os.sched_getaffinity(0)))
    command = [sys.executable, "-c", code, core]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in "ab"]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    shares = [float(process.communicate(timeout=60)[0]) for process in processes]
    assert all(0 < share < cpu_share.DISTURBED for share in shares)


def test_rest_of_the_calling_thread_is_no_work():
    meter = CpuMeter()
    time.sleep(0.05)
    assert meter.take() < 0.9


def test_a_share_is_marked_below_the_limit():
    assert [describe_share(share) for share in (1.0, 0.9, 0.894)] == ["100%", "90%", "89%, disturbed"]
