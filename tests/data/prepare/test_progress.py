"""Long files tell how far they are: a bar on a terminal, a line every ten seconds elsewhere, or nothing."""

import io
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from compare.system.log import INTERVAL_S, Reporter
from data.checks import check_corpus
from data.files import PAIRS_PER_CALL
from data.formats import TwoFiles
from data.prepare import Filters, PreparationPlan, run_first_pass
from tests.kits.raw_data import made_up, two_files


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_come_every_ten_seconds(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, show_log: Callable[..., None]
):
    stream, clock = io.StringIO(), count(start=0, step=4)  # four seconds between two calls
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    show_log(quiet=quiet)
    with Reporter(quiet=quiet).pairs() as progress:
        for name, total in (("reading", None), ("writing", 80_000)):
            for done in range(0, 70_000, 10_000):
                progress(name, done, total)
    expected = [
        f"{name}: {done:,}{of} pairs, 2,500 a second"
        for name, of in (("reading", ""), ("writing", " of 80,000"))
        for done in (30_000, 60_000)  # after 12 s and 24 s
    ]
    assert INTERVAL_S == 10
    assert stream.getvalue().splitlines() == ([] if quiet else expected)


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with Reporter().pairs() as progress:
        progress("reading", 80_000, None)
        progress("writing", 40_000, 80_000)
    assert "reading" in stream.getvalue()
    *_, last = stream.getvalue().split("writing")
    assert "40000/80000" in last
    assert "reading" not in last  # its bar is taken away


def test_the_work_ticks(tmp_path: Path):
    """Every block of a check, every so many pairs of the first pass, which does not report the last ones."""
    src, tgt = two_files(tmp_path, made_up(300) * 84)
    calls: dict[str, list[int]] = defaultdict(list)

    def record(name: str, done: int, total: int | None) -> None:
        assert total is None
        calls[name].append(done)

    source = TwoFiles(src=src, tgt=tgt)
    check_corpus({"train": [source]}, progress=record)
    plan = PreparationPlan(
        sources=[source], langs=("en", "de"), filters=Filters(), fixed_splits={"valid": source}
    )
    run_first_pass(plan, record)
    steps = [0, PAIRS_PER_CALL, 2 * PAIRS_PER_CALL]
    assert calls == {"reading train": [*steps, 25_200], "reading": steps}
