"""Memory, energy and share of the processor, from made-up counters and clocks."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from compare.experiment.compute_result import training_figures
from compare.system import measure
from compare.system.measure import Clock as DeviceClock
from compare.system.measure import CpuMeter, EnergyMeter, read_clock
from compare.system.processes import Interrupted
from data.batches import BatchStream
from tests.kits.common import Clock
from tests.kits.training import bleus, make_stream, metrics, trainer

CPU = torch.device("cpu")
stream = pytest.fixture(scope="module")(make_stream)


# Memory.


def resets_peaks() -> bool:
    """Linux only, and not every container."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


needs_resets = pytest.mark.skipif(not resets_peaks(), reason="this system lets no process reset its peak")


@needs_resets
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="freed memory is returned with glibc only")
def test_memory_that_earlier_work_has_freed_is_not_counted():
    """In a process that keeps it, as trainings do: the settings last, so it is one of its own."""
    code = """
import torch
from compare.system.device import tune_cpu
from compare.system.measure import peak_memory_bytes, reset_peak_memory
tune_cpu()
cpu = torch.device("cpu")
reset_peak_memory(cpu)
start = peak_memory_bytes(cpu)
blocks = [torch.ones(2**18) for _ in range(200)]  # 1 MB each
grown = peak_memory_bytes(cpu)
keep = blocks[100]  # a hole above it, and one below it
del blocks
reset_peak_memory(cpu)
print((grown - start) >> 20, (peak_memory_bytes(cpu) - start) >> 20)
"""
    command = [sys.executable, "-c", code]
    grown, left = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert grown > 150
    assert left < 30


# Energy and clock.


def test_energy_and_clock_are_those_of_the_gpu(monkeypatch: pytest.MonkeyPatch):
    class NVMLError(Exception):
        """As the library's own."""

    millijoules = {"GPU-abc": 1_000}
    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: millijoules[handle],
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1_980}[kind],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x1 | 0x4 | 0x20 | 0x40,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    meter = EnergyMeter(torch.device("cuda"))
    millijoules["GPU-abc"] = 8_000
    assert meter.take() == pytest.approx(7.0)
    assert meter.take() == 0
    assert EnergyMeter(CPU).take() is None
    cuda = torch.device("cuda")
    assert read_clock(cuda) == DeviceClock(1_980, frozenset({"power cap", "heat"}))

    def refuse(handle: str) -> int:
        raise NVMLError

    library.nvmlDeviceGetTotalEnergyConsumption = refuse
    assert EnergyMeter(cuda).take() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert EnergyMeter(cuda).take() is None
    assert read_clock(cuda) == DeviceClock(None)


def test_training_books_its_own_energy_and_not_that_of_validation(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An update costs 2 J, validating 1,000; the run is stopped between two log lines and resumed."""
    counted = SimpleNamespace(joules=100.0)

    monkeypatch.setattr(measure, "_read_millijoules", lambda device: 1e3 * counted.joules)

    def costing(run, stop_at: int = 0):
        update, validate, save = run._update, run.validate, run._save

        def costly_update(*arguments):
            counted.joules += 2
            update(*arguments)
            if run.state.update == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)

        def costly(work):
            def spend(*arguments, **options):
                counted.joules += 1_000
                return work(*arguments, **options)

            return spend

        run._update, run.validate, run._save = costly_update, costly(validate), costly(save)
        return run

    settings = {"max_updates": 9, "valid_every": 4, "log_every": 3, "checkpoint_every": 5}
    with pytest.raises(Interrupted):
        costing(trainer(stream, tmp_path, bleus(1), **settings), stop_at=7).run()
    counted.joules += 50_000  # between the two
    costing(trainer(stream, tmp_path, bleus(1), **settings)).run()
    lines = metrics(tmp_path)
    windows = [line for line in lines if line["kind"] == "train"]
    assert [(line["updates"], line["joules"]) for line in windows] == [(3, 6), (1, 2), (2, 4), (2, 4), (1, 2)]
    figures = training_figures(lines, stream)
    assert figures["energy_j_per_1k_tokens"] == pytest.approx(18_000 / figures["tokens_seen"])
    windows[0]["joules"] = None
    assert training_figures(lines, stream)["energy_j_per_1k_tokens"] is None


# Share of the processor.


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
    monkeypatch.setattr(measure, "TASKS", tmp_path)
    monkeypatch.setattr(measure, "time", kernel)
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
    meter = CpuMeter()
    kernel.wall, kernel.cpu = 9.0, 5.0
    kernel.set(main="3000000000 0 9", ended="")
    assert meter.take() == 0.75
    assert meter.take() == 1.0  # no time has passed


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_the_users_number_of_threads_is_kept(variable: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert not measure.SharedThreads(CPU, fixed=False).fixed
    monkeypatch.setenv(variable, "2")
    assert measure.SharedThreads(CPU, fixed=False).fixed


@pytest.mark.parametrize("fixed", [False, True])
def test_threads_make_room_for_another_program_and_come_back(
    fixed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A program takes one of two cores from second 10 to 100; one thread has all that it needs."""
    clock, threads, history = Clock(), 2, []

    def set_threads(number: int) -> None:
        nonlocal threads
        threads = number

    def share() -> float:
        return 0.55 if threads == 2 and 110 < clock.now <= 200 else 0.95  # Clock begins at 100

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(measure, "time", clock)
    monkeypatch.setattr(measure, "CpuMeter", lambda: SimpleNamespace(take=share))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", set_threads)
    monkeypatch.setattr(measure.SharedThreads, "_told", False)
    with measure.SharedThreads(CPU, fixed=fixed) as shared, caplog.at_level("INFO"):
        for clock.now in range(101, 301):
            shared.adapt()
            history.append(threads)
        set_threads(1 if not fixed else 2)
    assert threads == 2
    assert len(caplog.records) == 1  # said once
    assert caplog.records[0].levelname == ("WARNING" if fixed else "INFO")
    changes = [second for second in range(1, 200) if history[second] != history[second - 1]]
    # given up within a window; all tried again 30 s later, in vain for a window, and 60 s later with success
    assert changes == pytest.approx([] if fixed else [12, 43, 45, 107], abs=3)
