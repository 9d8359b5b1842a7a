"""Time and peak FLOP/s, from made-up counters and clocks."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from compare.system import timer
from compare.system.timer import Speed, peak_flops, percentile, time_in_turn
from tests.kits.common import Clock

CPU = torch.device("cpu")


class Work:
    """A function as a work that is timed."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def __call__(self) -> None:
        self.function()

    warm_up = __call__


def test_speeds_and_percentiles_by_hand():
    speed = Speed(sentences=12, tokens=60, seconds=[3.0, 1.0, 50.0])
    assert (speed.sentences_per_s, speed.tokens_per_s) == (4.0, 20.0)  # of the median repeat
    assert percentile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert percentile(list(range(101)), 0.95) == pytest.approx(95.0)
    assert timer.timed(lambda: time.sleep(0.02), CPU) >= 0.02


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_repeat_has_its_own_time_energy_and_peak(device: str, monkeypatch: pytest.MonkeyPatch):
    """Two works: a takes 2 s, b 3 s; 5 W all the time; 4 bytes are in use, and the work done adds to them."""
    clock, order, peak = Clock([2.0, 3.0] * 3), [], 0

    class Meter:
        def __init__(self, device: torch.device) -> None:
            self.before = clock.now

        def take(self) -> float:
            used, self.before = 5 * (clock.now - self.before), clock.now
            clock.now += 0.5  # to read takes time, which counts for no repeat
            return used

    def reset(device: torch.device) -> None:
        nonlocal peak
        peak, clock.now = 4, clock.now + 100

    def work(name: str) -> None:
        nonlocal peak
        order.append(name)
        peak += {"a": 10, "b": 7}[name]
        clock.work()

    monkeypatch.setattr(timer, "time", clock)
    monkeypatch.setattr(timer, "EnergyMeter", Meter)
    monkeypatch.setattr(timer, "CpuMeter", lambda: SimpleNamespace(take=lambda: 0.75))
    monkeypatch.setattr(timer, "reset_peak_memory", reset)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: peak)
    monkeypatch.setattr(timer, "peak_memory_bytes", lambda device: peak)
    monkeypatch.setattr(timer, "synchronize", lambda device: None)
    monkeypatch.setattr(timer, "ReferenceWork", lambda device: lambda: None)
    works = [Work(lambda: work("a")), Work(lambda: work("b"))]
    repeats = time_in_turn(works, torch.device(device), repeats=2)
    peaks = (10, 7) if device == "cuda" else (None, None)
    assert order == ["a", "b"] * 3  # once to warm up
    assert repeats == [[(2.0, 12.5, peaks[0], 0.75, 0.0)] * 2, [(3.0, 17.5, peaks[1], 0.75, 0.0)] * 2]


def test_a_repeat_lasts_its_time_and_the_reference_work_follows_it(monkeypatch: pytest.MonkeyPatch):
    clock = Clock([9.0, 2.0, 2.0, 5.0, 7.0])  # once to warm up; two repeats
    monkeypatch.setattr(timer, "time", clock)
    monkeypatch.setattr(timer, "ReferenceWork", lambda device: partial(clock.pass_time, 0.25))
    (repeats,) = time_in_turn([Work(clock.work)], CPU, repeats=2, seconds=5)
    assert [(each.seconds, each.reference_s) for each in repeats] == [(3.0, 0.25), (7.0, 0.25)]


def test_the_best_time_of_the_reference_work_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timer, "CACHE", tmp_path / "cache")
    assert [timer.best_reference(CPU, seconds) for seconds in (3.0, 2.0, 4.0)] == [3.0, 2.0, 2.0]
    (tmp_path / "cache" / "reference.json").write_text("{")
    assert timer.best_reference(CPU, 4.0) == 4.0
    monkeypatch.setattr(timer, "CACHE", tmp_path / "cache" / "reference.json")  # no folder
    assert timer.best_reference(CPU, 5.0) == 5.0


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
