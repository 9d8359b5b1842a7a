"""Long files tell how far they are: a bar on a terminal, a line every ten seconds elsewhere, or nothing."""

import io
import sys
from itertools import count
from pathlib import Path

import pytest

from compare.system.progress import PACE_S, Reporter
from data.prepare.checks import check_corpus
from data.prepare.filters import Filters
from data.prepare.first_pass import PreparationPlan, run_first_pass
from data.prepare.progress import EVERY
from data.text.formats import TwoFiles
from tests.kits.raw_data import made_up, two_files


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_come_every_ten_seconds(quiet: bool, monkeypatch: pytest.MonkeyPatch):
    stream, clock = io.StringIO(), count(start=0, step=4)  # four seconds between two calls
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    for total in (None, 80_000):
        with Reporter(quiet=quiet).counting("reading", total) as tick:
            for done in range(10_000, 70_000, 10_000):
                tick(done)
    expected = [
        f"reading: {done:,}{of} pairs, 2,500 a second"
        for of in ("", " of 80,000")
        for done in (30_000, 60_000)  # after 12 s and 24 s
    ]
    assert PACE_S == 10
    assert stream.getvalue().splitlines() == ([] if quiet else expected)


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with Reporter().counting("writing", 80_000) as tick:
        tick(40_000)
    assert "writing" in stream.getvalue()
    assert "40000/80000" in stream.getvalue()


def test_the_work_ticks(tmp_path: Path):
    """Every block of a check, every so many pairs of a survey; the last ones are not told."""
    src, tgt = two_files(tmp_path, made_up(300) * 84)
    told: dict[str, list[int]] = {"check": [], "survey": []}

    class Recorded:
        def __init__(self, _label: str, _total: int | None) -> None:
            pass

        def __enter__(self):
            return told["check"].append

        def __exit__(self, *_: object) -> None:
            pass

    source = TwoFiles(src=src, tgt=tgt)
    check_corpus({"": [source]}, progress=Recorded)
    plan = PreparationPlan(
        sources=[source], langs=("en", "de"), filters=Filters(), fixed_splits={"valid": source}
    )
    run_first_pass(plan, told["survey"].append)
    assert told == {"check": [EVERY, 2 * EVERY, 25_200], "survey": [EVERY, 2 * EVERY]}
