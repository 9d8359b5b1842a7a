"""Decoding speed: after a warm-up, of each line alone for latency."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compare.decoding.timing import time_decoding, time_latency
from compare.decoding.translator import Translator
from compare.experiment import run_one
from compare.experiment.prepare import load_corpus
from compare.results.run_folder import RunFolder
from compare.results.trained_model import load_model
from compare.system import timing
from compare.system.timing import Speed
from tests.kits.clock import Clock

LINES = ["dog", "old cat sees tree", "red red"]


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
    monkeypatch.setattr(timing.time, "perf_counter", clock.perf_counter)
    return asked


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
    monkeypatch.setattr(run_one, "peak_memory_bytes", noted("peak", 6))
    monkeypatch.setattr(run_one, "time_decoding", noted("time", speed))
    monkeypatch.setattr(run_one, "time_latency", noted("time", [1.0]))
    run_one.measure_speed(translator, load_corpus(run.run.data), run, decode_s=1.0)
    assert order == ["peak", "time", "time", "time"]
    assert json.loads(run.speed.read_text())["peak_memory_bytes"] == 6


def test_latency_is_that_of_each_line_alone(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    asked = slowed(translator, [1000.0, 0.25, 0.5, 0.125], monkeypatch)
    assert time_latency(translator, LINES, beam_size=1) == [250.0, 500.0, 125.0]
    assert asked == [([line], 1) for line in (LINES[0], *LINES)]
