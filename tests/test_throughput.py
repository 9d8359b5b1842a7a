"""Speed and memory: medians and percentiles of a clock that we wind, and a peak that is really measured."""

import json
import mmap
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compare import execute, throughput
from compare.prepare import load_corpus
from compare.run_folder import RunFolder
from compare.throughput import (
    Speed,
    matmul_flops_per_s,
    peak_memory_bytes,
    percentile,
    reset_peak_memory,
    take_turns,
    time_decoding,
    time_latency,
)
from compare.translate import Translator, load_model

CPU = torch.device("cpu")
LINES = ["dog", "old cat sees tree", "red red"]


class Clock:
    """A clock that each call of ``work`` puts forward by the next of ``seconds``."""

    def __init__(self, seconds: list[float]) -> None:
        self.now, self.seconds = 100.0, iter(seconds)

    def perf_counter(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += next(self.seconds)


@pytest.fixture(scope="module")
def translator(finished: Path) -> Translator:
    return load_model(finished / "transformer-seed1")


def slowed(
    translator: Translator, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[list[str], int]]:
    """Let the n-th search take ``seconds[n]``; gives the list of what is asked of the translator."""
    clock, asked = Clock(seconds), []
    search = translator.search

    def slow(lines: list[str], beam_size: int) -> object:
        asked.append((list(lines), beam_size))
        clock.work()
        return search(lines, beam_size)

    monkeypatch.setattr(translator, "search", slow)
    monkeypatch.setattr(throughput.time, "perf_counter", clock.perf_counter)
    return asked


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 1))
def test_a_percentile_has_its_share_of_the_values_below_it(values: list[float], share: float):
    """By the definition, written out: place share * (n - 1) of the sorted values, between neighbours."""
    place = share * (len(values) - 1)
    low, high = (sorted(values)[min(int(place) + k, len(values) - 1)] for k in (0, 1))
    expected = low + (high - low) * (place - int(place))
    assert percentile(values, share) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert percentile(values, share) == pytest.approx(float(np.percentile(values, 100 * share)), abs=1e-6)


def test_percentiles_by_hand():
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert percentile(list(range(101)), 0.95) == pytest.approx(95.0)


def test_a_speed_is_that_of_the_median_repeat():
    speed = Speed(sentences=12, tokens=60, seconds=[3.0, 1.0, 50.0])
    assert (speed.sentences_per_s, speed.tokens_per_s) == (4.0, 20.0)


def test_each_turn_has_its_own_time_energy_and_peak(monkeypatch: pytest.MonkeyPatch):
    """Two works: a takes 2 s, b 3 s; 5 W all the time; the peak is what was done."""
    clock, order, peak = Clock([2.0, 3.0] * 3), [], 0

    class Meter:
        def __init__(self, device: torch.device) -> None:
            self.before = clock.now

        def take(self) -> float:
            used, self.before = 5 * (clock.now - self.before), clock.now
            clock.now += 0.5  # to read it takes time, which is no turn's
            return used

    def reset(device: torch.device) -> None:
        nonlocal peak
        peak, clock.now = 0, clock.now + 100

    def work(name: str) -> None:
        nonlocal peak
        order.append(name)
        peak += {"a": 10, "b": 7}[name]
        clock.work()

    monkeypatch.setattr(throughput, "time", clock)
    monkeypatch.setattr(throughput, "EnergyMeter", Meter)
    monkeypatch.setattr(throughput, "reset_peak_memory", reset)
    monkeypatch.setattr(throughput, "peak_memory_bytes", lambda device: peak)
    turns = list(take_turns([lambda: work("a"), lambda: work("b")], CPU, repeats=2))
    assert order == ["a", "b"] * 3  # once to warm up
    assert turns == [(0, (2.0, 12.5, 10)), (1, (3.0, 17.5, 7))] * 2


def test_decoding_is_timed_after_a_warm_up(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    tokens = sum(len(found.tokens) + 1 for found in translator.search(LINES, 2))
    asked = slowed(translator, [1000.0, 4.0, 2.0, 3.0], monkeypatch)
    speed = time_decoding(translator, LINES, beam_size=2, repeats=3)
    assert speed == Speed(sentences=3, tokens=tokens, seconds=[4.0, 2.0, 3.0])
    assert asked == [(LINES, 2)] * 4


def test_the_peak_of_a_run_is_not_that_of_a_timed_turn(
    copy: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch
):
    run, order = RunFolder.read(copy / "transformer-seed1"), []

    def noted(name: str, value: Any) -> Callable[..., Any]:
        return lambda *_, **__: order.append(name) or value

    speed = Speed(sentences=1, tokens=1, seconds=[1.0])
    monkeypatch.setattr(execute, "peak_memory_bytes", noted("peak", 6))
    monkeypatch.setattr(execute, "time_decoding", noted("time", speed))
    monkeypatch.setattr(execute, "time_latency", noted("time", [1.0]))
    execute.measure(translator, run.experiment, load_corpus(run.experiment.data), run, decode_s=1.0)
    assert order == ["peak", "time", "time", "time"]
    assert json.loads(run.speed.read_text())["peak_memory_bytes"] == 6


def test_latency_is_that_of_each_line_alone(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    asked = slowed(translator, [1000.0, 0.25, 0.5, 0.125], monkeypatch)
    assert time_latency(translator, LINES, beam_size=1) == [250.0, 500.0, 125.0]
    assert asked == [([line], 1) for line in (LINES[0], *LINES)]


def test_the_yardstick_is_the_best_of_some_products(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(throughput.YARDSTICK_SIZE, "cpu", 10)
    times: Iterator[float] = iter([0.5, 0.125, 0.25])
    now = iter([0.0, 0.0, 1.0, 2.0, 9.0])  # the last one is past the end
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(throughput, "_timed", lambda work, device: next(times))
    assert matmul_flops_per_s(CPU, "fp32", seconds=3.0) == 2 * 10**3 / 0.125


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_yardstick_multiplies_in_the_precision_of_training(
    precision: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(throughput.YARDSTICK_SIZE, "cpu", 64)
    products = []

    def timed(work: object, device: torch.device) -> float:
        products.append(work())  # type: ignore[operator]
        return 1.0

    monkeypatch.setattr(throughput, "_timed", timed)
    matmul_flops_per_s(CPU, precision, seconds=0.01)
    assert products[0].shape == (64, 64)
    assert products[0].dtype == dtype


def test_the_yardstick_of_this_machine_is_plausible():
    """No core does less than 0.1 GFLOP/s in an optimised product, and none more than 10 PFLOP/s."""
    assert 1e8 < matmul_flops_per_s(CPU, "fp32", seconds=0.05) < 1e16


def test_timing_includes_the_work():
    assert 0.02 <= throughput._timed(lambda: time.sleep(0.02), CPU) < 2


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is reset on Linux only")
def test_the_peak_is_that_since_the_reset():
    size = 96 * 2**20
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not let a process reset its peak")
    reset_peak_memory(CPU)
    before = peak_memory_bytes(CPU)
    with mmap.mmap(-1, size) as block:  # from the system itself: the C library may hold freed memory
        for place in range(0, size, mmap.PAGESIZE):
            block[place] = 1
        held = peak_memory_bytes(CPU)
    assert held - before > 0.8 * size
    assert peak_memory_bytes(CPU) - before > 0.8 * size  # a peak stays
    reset_peak_memory(CPU)
    assert peak_memory_bytes(CPU) < held - 0.8 * size


def test_the_peak_is_positive_without_proc(monkeypatch: pytest.MonkeyPatch):
    def absent(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert 2**20 < peak_memory_bytes(CPU) < 2**44


def test_medians_are_not_means():
    seconds = [1.0, 2.0, 9.0]
    speed = Speed(sentences=1, tokens=1, seconds=seconds)
    assert speed.sentences_per_s == 1 / statistics.median(seconds) != 1 / statistics.mean(seconds)
