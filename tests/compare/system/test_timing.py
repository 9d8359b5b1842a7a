"""Timing: medians, percentiles and minima of a fake clock; time, energy and memory of each repeat."""

import statistics
import time
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compare.system import measure as timing
from compare.system.measure import Speed, percentile, time_in_turn
from tests.kits.clock import Clock

CPU = torch.device("cpu")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 1))
def test_a_percentile_has_its_share_of_the_values_below_it(values: list[float], share: float):
    """By definition: position share * (n - 1) of the sorted values, interpolated between neighbours."""
    position = share * (len(values) - 1)
    low, high = (sorted(values)[min(int(position) + k, len(values) - 1)] for k in (0, 1))
    expected = low + (high - low) * (position - int(position))
    assert percentile(values, share) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert percentile(values, share) == pytest.approx(float(np.percentile(values, 100 * share)), abs=1e-6)


def test_percentiles_by_hand():
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert percentile(list(range(101)), 0.95) == pytest.approx(95.0)


def test_a_speed_is_that_of_the_median_repeat():
    speed = Speed(sentences=12, tokens=60, seconds=[3.0, 1.0, 50.0])
    assert (speed.sentences_per_s, speed.tokens_per_s) == (4.0, 20.0)


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

    class Shares:
        def take(self) -> float:
            return 0.75

    def reset(device: torch.device) -> None:
        nonlocal peak
        peak, clock.now = 4, clock.now + 100

    def work(name: str) -> None:
        nonlocal peak
        order.append(name)
        peak += {"a": 10, "b": 7}[name]
        clock.work()

    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "EnergyMeter", Meter)
    monkeypatch.setattr(timing, "CpuMeter", Shares)
    monkeypatch.setattr(timing, "reset_peak_memory", reset)
    monkeypatch.setattr(timing, "gpu_memory_in_use", lambda device: peak)
    monkeypatch.setattr(timing, "peak_memory_bytes", lambda device: peak)
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    works = [lambda: work("a"), lambda: work("b")]
    repeats = list(time_in_turn(works, torch.device(device), repeats=2))
    peaks = (10, 7) if device == "cuda" else (None, None)
    assert order == ["a", "b"] * 3  # once to warm up
    assert repeats == [(0, (2.0, 12.5, peaks[0], 0.75)), (1, (3.0, 17.5, peaks[1], 0.75))] * 2


def test_a_warm_up_can_be_less_than_the_work():
    order: list[str] = []
    works = [partial(order.append, name) for name in ("a", "b")]
    warm_ups = [partial(order.append, name) for name in ("warm a", "warm b")]
    list(time_in_turn(works, CPU, repeats=2, warm_ups=warm_ups))
    assert order == ["warm a", "warm b", *"abab"]


def test_the_fastest_of_several_runs_counts(monkeypatch: pytest.MonkeyPatch):
    clock = Clock([100.0, 5.0, 1.0, 3.0, 8.0, 4.0])
    monkeypatch.setattr(timing, "time", clock)
    assert timing.best_of(clock.work, CPU, repeats=3, seconds=20) == 1
    assert list(clock.seconds) == []  # a warm-up, and as many runs as it takes to fill 20 seconds
    clock = Clock([1.0, 5.0, 4.0, 2.0])
    monkeypatch.setattr(timing, "time", clock)
    assert timing.best_of(clock.work, CPU, repeats=2) == 4
    assert list(clock.seconds) == [2.0]


def test_timing_includes_the_work():
    assert 0.02 <= timing.timed(lambda: time.sleep(0.02), CPU) < 2


def test_medians_are_not_means():
    seconds = [1.0, 2.0, 9.0]
    speed = Speed(sentences=1, tokens=1, seconds=seconds)
    assert speed.sentences_per_s == 1 / statistics.median(seconds) != 1 / statistics.mean(seconds)
