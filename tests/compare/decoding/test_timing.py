"""Workloads of decoding: all lines together, and each line alone for latency."""

from pathlib import Path

import pytest

from compare.decoding.translator import DecodingWork, LatencyWork, Translator
from compare.results.trained_model import load_model
from compare.system import measure as timing
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


def test_decoding_counts_its_tokens(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    tokens = sum(len(found.tokens) + 1 for found in translator.search(LINES, 2))
    asked = slowed(translator, [1.0, 2.0], monkeypatch)
    work = DecodingWork(translator, LINES, 2)
    assert work.tokens == 0
    work()
    work()
    assert work.tokens == tokens
    assert asked == [(LINES, 2)] * 2


def test_latency_is_that_of_each_line_alone(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    asked = slowed(translator, [1000.0, 0.25, 0.5, 0.125, 0.5, 0.5, 1.0], monkeypatch)
    work = LatencyWork(translator, LINES, 1)
    work.warm_up()
    work()
    work()
    assert work.ms == [[250.0, 500.0, 125.0], [500.0, 500.0, 1000.0]]
    assert asked == [([line], 1) for line in (LINES[0], *LINES, *LINES)]
