"""Log messages and progress: silent in a library, printed by a command, each one in the log.txt of a run."""

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import pytest

from compare.system import log
from compare.system.log import Reporter, format_duration, hide_messages, log_to_file, no_messages

LOGGER, DATA = logging.getLogger("compare.somewhere"), logging.getLogger("data.somewhere")
ShowLog = Callable[..., None]
LINES = ["100% [red]plain[/red]", "warning: few pairs", "x: failed"]


def log_all() -> None:
    LOGGER.debug("details")
    LOGGER.info("100% [red]plain[/red]")
    DATA.warning("few pairs")
    LOGGER.error("x: failed")


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_prints_each_line_once_and_a_file_gets_it_with_the_time(
    quiet: bool, show_log: ShowLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "log.txt"
    path.write_text("earlier\n")
    show_log(quiet=quiet)
    with log_to_file(path):
        log_all()
    assert capsys.readouterr() == ("", "" if quiet else "".join(f"{line}\n" for line in LINES))
    LOGGER.info("afterwards")
    hide_messages()
    capsys.readouterr()
    log_all()
    assert capsys.readouterr() == ("", "")
    first, *lines = path.read_text().splitlines()
    assert first == "earlier"
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S", line) for line in lines)
    assert [line[20:] for line in lines] == LINES
    assert logging.getLogger("compare").level == logging.NOTSET


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(OSError, match=r"log\.txt") as caught, log_to_file(tmp_path / "missing" / "log.txt"):
        LOGGER.info("lost")
    assert caught.value.filename == str(tmp_path / "missing" / "log.txt")


CODE = """
import logging, sys
from pathlib import Path
import compare, data
from compare.system.log import log_to_file
if sys.argv[2]:
    logging.basicConfig(level=sys.argv[2], format="%(name)s: %(message)s")
with log_to_file(Path(sys.argv[1])):
    logging.getLogger("compare.somewhere").info("step")
    logging.getLogger("data.somewhere").error("failed")
logging.getLogger("compare.somewhere").error("failed")
"""


@pytest.mark.parametrize(("level", "first"), [("", 3), ("INFO", 0), ("WARNING", 1)])
def test_a_library_prints_what_logging_is_configured_for(level: str, first: int, tmp_path: Path):
    """Also while a run's log.txt gets everything."""
    command = [sys.executable, "-c", CODE, str(tmp_path / "log.txt"), level]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = ["compare.somewhere: step", "data.somewhere: failed", "compare.somewhere: failed"]
    assert done.stderr.splitlines() == lines[first:]
    assert done.stdout == ""
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 2


def test_the_messages_of_one_module_can_be_discarded(show_log: ShowLog, capsys: pytest.CaptureFixture[str]):
    show_log()
    with no_messages(LOGGER.name):
        LOGGER.error("lost")
        DATA.info("kept")
    LOGGER.info("afterwards")
    assert capsys.readouterr().err == "kept\nafterwards\n"


@pytest.mark.parametrize(
    ("unit", "lines"),
    [
        ("pairs", ["reading: 2,000,000 pairs", "writing: 1,000,000 of 4,000,000 pairs"]),
        ("bytes", ["reading: 2.0 MB", "writing: 1.0 of 4.0 MB"]),
    ],
)
def test_without_a_terminal_a_line_comes_every_ten_seconds(
    unit: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    show_log: ShowLog,
    capsys: pytest.CaptureFixture[str],
):
    clock = count(start=0, step=5)  # five seconds between two calls
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    show_log()
    with Reporter().counting(unit) as progress:
        for name, total in (("reading", None), ("writing", 4_000_000)):
            progress(name, 1_000_000, total)
            progress(name, 2_000_000, total)
            progress(name, 3_000_000, total)
    assert capsys.readouterr().err.splitlines()[:2] == lines


def train(update: int, updates: int) -> dict[str, object]:
    figures = {"seconds": 1.0, "loss": 1.0, "tokens_per_s": 1.0}
    return {"kind": "train", "update": update, "updates": updates, **figures}


def validation(kind: str, update: int, bleu: float | None = 1.0) -> dict[str, object]:
    chosen = {"chosen": f"update {update}"} if kind == "final" else {}
    return {"kind": kind, "update": update, "seconds": 1.0, "loss": 1.0, "bleu": bleu, **chosen}


@pytest.mark.parametrize("terminal", [False, True])
def test_messages_tell_the_share_of_all_runs_and_the_time_left(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Run a has 100 updates of work 1, b 100 of work 3: 400 in all; a was resumed at update 20."""
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(log, "_bars", lambda unit: nullcontext(lambda *numbers: None))
    reporter = Reporter()
    reporter.expect({"a": (100, 1.0), "b": (100, 3.0)})
    with caplog.at_level(logging.INFO, logger="compare"):
        with reporter.training("a", 100) as show:
            now[0] = 6
            show(train(40, 20))  # 20 in 6 s here, 40 of 400 in all: 360 are left
            now[0] = 24
            show(train(100, 60))  # 80 in 24 s
            show(validation("valid", 100))
        with reporter.training("b", 100) as show:
            now[0] = 54
            show(train(60, 60))  # 260 in 54 s; 120 are left
            show(validation("final", 60, None))
        with reporter.training("unannounced", 10) as show:
            show(train(5, 5))
    messages = [
        "a 40/100 1 s: loss 1.000, 1 tokens/s; 10% of all 2 runs, about 2 min left",
        "a 100/100 1 s: loss 1.000, 1 tokens/s; 25% of all 2 runs, about 90 s left",
        "a 100/100 1 s: validation loss 1.000, BLEU 1.00; 25% of all 2 runs, about 90 s left",
        "b 60/100 1 s: loss 1.000, 1 tokens/s; 70% of all 2 runs, about 25 s left",
        "b 60/100 1 s: keeps update 60, validation loss 1.000; 100% of all 2 runs",  # patience stopped it
        "unannounced 5/10 1 s: loss 1.000, 1 tokens/s",
    ]
    # On a terminal, bars show the losses of training.
    assert caplog.messages == [each for each in messages if not terminal or ": loss" not in each]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (99, "99 s"), (101, "2 min"), (5_900, "98 min"), (12_600, "3.5 h")]
)
def test_durations(seconds: float, text: str):
    assert format_duration(seconds) == text
