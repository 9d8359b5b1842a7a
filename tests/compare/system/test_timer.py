"""Time and peak FLOP/s, from made-up counters and clocks."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from compare.system import timer
from compare.system.device import this_machine
from compare.system.measure import Clock as DeviceClock
from compare.system.timer import ReferenceWork, Speed, measure_machine, peak_flops, time_in_turn
from tests.kits.common import Clock

CPU = torch.device("cpu")


class Model(nn.Module):
    """A model that only notes where it is, first on the processor."""

    device = "cpu"

    def to(self, device: torch.device) -> None:  # type: ignore[override]
        self.device = device.type


class Work:
    """A function as a work that is timed."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function, self.holders = function, [Model()]

    def __call__(self) -> None:
        self.function()

    warm_up = __call__


def test_speeds_by_hand():
    speed = Speed(sentences=12, tokens=60, seconds=[3.0, 1.0, 50.0])
    assert (speed.sentences_per_s, speed.tokens_per_s) == (4.0, 20.0)  # the median repeat counts
    assert timer.timed(lambda: time.sleep(0.02), CPU) >= 0.02


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_repeat_has_its_own_time_energy_and_peak(device: str, monkeypatch: pytest.MonkeyPatch):
    """Two works: a takes 2 s, b 3 s; 5 W all the time; each model has 5 bytes, and the work adds to them."""
    warm_up = [2.0, 2.0, 3.0] if device == "cuda" else [2.0, 3.0]  # 3 s or more on a GPU
    clock, order, peak = Clock([*warm_up, *[2.0, 3.0] * 2]), list[str](), 0

    class Meter:
        def __init__(self, device: torch.device) -> None:
            self.before = clock.now

        def take(self) -> float:
            used, self.before = 5 * (clock.now - self.before), clock.now
            clock.now += 0.5  # to read takes time, which counts for no repeat
            return used

    def reset(device: torch.device) -> None:
        nonlocal peak
        peak, clock.now = allocated(device), clock.now + 100

    def allocated(device: torch.device) -> int:
        return 4 + sum(5 for work in works if work.holders[0].device == "cuda")

    def work(name: str) -> None:
        nonlocal peak
        order.append(name)
        devices = {"a": "cpu", "b": "cpu", name: device}
        assert [work.holders[0].device for work in works] == [*devices.values()]
        peak += {"a": 10, "b": 7}[name]
        clock.work()

    monkeypatch.setattr(timer, "time", clock)
    monkeypatch.setattr(timer, "EnergyMeter", Meter)
    monkeypatch.setattr(timer, "CpuMeter", lambda: SimpleNamespace(take=lambda: 0.75))
    monkeypatch.setattr(timer, "reset_peak_memory", reset)
    monkeypatch.setattr(torch.cuda, "memory_allocated", allocated)
    monkeypatch.setattr(timer, "peak_memory_bytes", lambda device: peak)
    monkeypatch.setattr(timer, "synchronize", lambda device: None)
    now = DeviceClock(1_500.0, frozenset({"heat"}))
    monkeypatch.setattr(timer, "ReferenceWork", lambda device: SimpleNamespace(measure=lambda: (0.0, now)))
    works = [Work(lambda: work("a")), Work(lambda: work("b"))]
    repeats = time_in_turn(works, torch.device(device), repeats=2)
    peaks = (5 + 10, 5 + 7) if device == "cuda" else (None, None)
    assert order == ["a"] * (len(warm_up) - 1) + ["b", "a", "b", "a", "b"]
    costs = [(2.0, 12.5, peaks[0]), (3.0, 17.5, peaks[1])]
    assert repeats == [[(*cost, 0.75, 0.0, now)] * 2 for cost in costs]


def test_a_repeat_lasts_its_time_and_the_reference_work_follows_it(monkeypatch: pytest.MonkeyPatch):
    clock = Clock([9.0, 2.0, 2.0, 5.0, 7.0])  # once to warm up; two repeats
    monkeypatch.setattr(timer, "time", clock)
    monkeypatch.setattr(ReferenceWork, "__call__", lambda _: clock.pass_time(0.25))
    monkeypatch.setattr(timer, "EnergyMeter", lambda device: SimpleNamespace(take=lambda: 6.0))
    (repeats,) = time_in_turn([Work(clock.work)], CPU, repeats=2, seconds=5)
    costs = [(repeat.seconds, repeat.joules, repeat.reference_s) for repeat in repeats]
    assert costs == [(3.0, 2.0, 0.25), (7.0, 6.0, 0.25)]


def test_the_best_time_of_the_reference_work_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rates that differ by a fourth belong to one machine, rates that differ by half do not."""
    monkeypatch.setattr(timer, "CACHE", tmp_path / "cache")
    machine = replace(this_machine(CPU), fp32_gflops=100.0, bf16_gflops=200.0)
    assert [timer.best_reference(machine, seconds) for seconds in (3.0, 2.0, 4.0)] == [3.0, 2.0, 2.0]
    assert timer.best_reference(replace(machine, fp32_gflops=125.0), 4.0) == 2.0
    for changes in ({"fp32_gflops": 230.0}, {"environment": "MKL_CBWR=AVX2"}, {"device": "another"}):
        assert timer.best_reference(replace(machine, **changes), 4.0) == 4.0
    (tmp_path / "cache" / "reference.json").write_text("{")
    assert timer.best_reference(machine, 4.0) == 4.0
    monkeypatch.setattr(timer, "CACHE", tmp_path / "cache" / "reference.json")  # no folder
    assert timer.best_reference(machine, 5.0) == 5.0


def test_the_reference_work_of_a_gpu_is_products_for_its_least_time(monkeypatch: pytest.MonkeyPatch):
    """A card of 1 GFLOP/s, with matrices of 100 x 100: 25 products take 50 ms; here each takes 2 s."""
    clock, device = Clock(), torch.device("cuda")
    monkeypatch.setattr(timer, "time", clock)
    monkeypatch.setattr(timer, "synchronize", lambda device: None)
    monkeypatch.setattr(timer, "_random_matrix", lambda device, dtype: torch.ones(100, 100, dtype=dtype))
    monkeypatch.setattr(timer, "product_gflops", lambda device, precision: 1.0)
    monkeypatch.setattr(timer, "read_clock", lambda device: DeviceClock(clock.now))
    work = ReferenceWork(device)
    products: list[torch.dtype] = []

    def multiply(left: torch.Tensor, right: torch.Tensor) -> None:
        products.append(left.dtype)
        clock.pass_time(2.0)

    monkeypatch.setattr(torch, "mm", multiply)
    assert work.measure() == (2.0, DeviceClock(100.0 + 2.0 * 26))  # read when the last product is queued
    assert products == [torch.bfloat16] * 26


def test_the_machine_of_a_timing_has_its_rates_and_clock(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(timer, "time", clock)
    monkeypatch.setitem(timer.PRODUCT_SIZE, "cpu", 100)
    monkeypatch.setattr(timer, "best_of", lambda work, device, seconds: float(work().dtype.itemsize) / 1e3)
    clocks = [DeviceClock(1_000.0), DeviceClock(1_800.0, frozenset({"power cap"})), DeviceClock(1_500.0)]
    machine = measure_machine(CPU, [SimpleNamespace(clock=clock) for clock in clocks])  # type: ignore[misc]
    assert (machine.clock_mhz, machine.throttling) == (1_500.0, "power cap")
    assert (machine.fp32_gflops, machine.bf16_gflops) == pytest.approx((0.5, 1.0))  # 2 MFLOP in 4 or 2 ms
    assert measure_machine(CPU, []).clock_mhz is None


def test_models_and_optimizers_move_but_not_their_counts():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    timer.move([model, optimizer], torch.device("meta"))
    states = list(optimizer.state.values())
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert [{name: value.device.type for name, value in state.items()} for state in states] == [
        {"step": "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}
    ] * 2


def test_the_fastest_of_several_runs_counts(monkeypatch: pytest.MonkeyPatch):
    clock = Clock([100.0, 5.0, 1.0, 3.0, 8.0, 4.0])
    monkeypatch.setattr(timer, "time", clock)
    assert timer.best_of(clock.work, CPU, repeats=3, seconds=20) == 1
    assert list(clock.seconds) == []  # a warm-up, and as many runs as it takes to fill 20 seconds


# Peak FLOP/s.


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA H200 NVL", 835.5e12, 60e12),
        ("NVIDIA H100 80GB HBM3", 989e12, 67e12),
        ("NVIDIA A10G", 70e12, 35e12),
        ("NVIDIA A10", 125e12, 31.2e12),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("AMD EPYC 9B14", None, None),
    ],
)
def test_a_peak_is_that_of_the_data_sheet_of_the_whole_card(name: str, bf16: float, fp32: float):
    assert (peak_flops(name, "bf16"), peak_flops(name, "fp32")) == (bf16, fp32)
