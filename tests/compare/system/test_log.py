"""Log messages and progress: silent in a library, printed by a command, each one in the log.txt of a run."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from compare.system import log
from compare.system.log import Reporter, counting, format_duration, hide_messages, log_to_file

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
    shown = LINES[2:] if quiet else LINES  # errors in any case
    assert capsys.readouterr() == ("", "".join(f"{line}\n" for line in shown))
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


@pytest.mark.parametrize(("level", "first"), [("", 3), ("INFO", 0)])
def test_a_library_prints_only_where_logging_is_configured(level: str, first: int, tmp_path: Path):
    """Also while a run's log.txt gets everything."""
    command = [sys.executable, "-c", CODE, str(tmp_path / "log.txt"), level]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = ["compare.somewhere: step", "data.somewhere: failed", "compare.somewhere: failed"]
    assert done.stderr.splitlines() == lines[first:]
    assert done.stdout == ""
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 2


SHOW = """
import logging, time
from compare.system.log import show_messages
show_messages()
for number in range(3):
    logging.getLogger("compare.somewhere").info("step %d", number)
print("end")
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_messages_that_cannot_be_shown_end_no_work():
    """A full disk, or a reader that has gone."""
    reader, pipe = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(pipe, "w") as gone:
        for stderr in (full, gone):
            done = subprocess.run(
                [sys.executable, "-c", SHOW], stdout=subprocess.PIPE, stderr=stderr, check=True, text=True
            )
            assert done.stdout == "end\n"


@pytest.mark.parametrize(
    ("unit", "lines"),
    [
        ("pairs", ["reading: 2,000,000 pairs", "writing: 1,000,000 of 4,000,000 pairs, about 30 s left"]),
        ("MB", ["reading: 2.0 MB", "writing: 1.0 of 4.0 MB, about 30 s left"]),
    ],
)
def test_without_a_terminal_lines_come_at_intervals(
    unit: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    show_log: ShowLog,
    capsys: pytest.CaptureFixture[str],
):
    clock = count(start=0, step=10)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    show_log()
    with counting(unit) as progress:
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


def test_messages_tell_the_share_of_all_runs_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Run a has 100 updates of work 1, b 100 of work 3, timing 40 and 5 s; a was resumed at update 20."""
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    reporter = Reporter()
    reporter.expect({"a": (0, 100, 1.0), "b": (0, 100, 3.0)}, after=40.0, after_s=5.0)
    with caplog.at_level(logging.INFO, logger="compare"):
        with reporter.training("a", 100) as show:
            now[0] = 6
            show(train(40, 20))  # 20 in 6 s here, 40 of 400 in all: 360 are left
            for update in range(41, 100):  # at the same speed, a message every 20 s or a little more
                now[0] = (update - 20) * 0.3
                show({"kind": "update", "update": update})
            now[0] = 24
            show(train(100, 60))  # 80 in 24 s, said by the validation
            show(validation("valid", 100))
            now[0] = 30  # the test takes 6 s
        with reporter.training("b", 100) as show:
            now[0] = 60
            show(train(60, 60))  # 260 in 60 s; 120 are left
            show(validation("final", 60, None))
        with reporter.training("unannounced", 10) as show:
            now[0] = 81
            show(train(5, 5))
    assert caplog.messages == [
        "a: update 87 of 100; 22% of all 2 runs, about 2 min left",
        "a: update 100 of 100, 1 s: validation loss 1.000, BLEU 1.00; 25% of all 2 runs, about 2 min left",
        "b: update 60 of 100; 70% of all 2 runs, about 42 s left",
        "b: update 60 of 100: keeps update 60; 100% of all 2 runs, about 14 s left",
        "unannounced: update 5 of 10",
    ]


def test_updates_that_a_trunk_has_done_are_not_expected(caplog: pytest.LogCaptureFixture):
    reporter = Reporter()
    reporter.expect({"a": (80, 100, 1.0), "b": (0, 60, 1.0)})
    with caplog.at_level(logging.INFO, logger="compare"), reporter.training("a", 100) as show:
        show(validation("valid", 90))
    assert "; 12% of all 2 runs" in caplog.messages[0]  # 10 of 80


TERMINAL = """
import logging, sys
from compare.system.log import Reporter, show_messages, track
import compare.system.log as log
now, log.REFRESH_S = [0.0], 0.0
log.time.monotonic = lambda: now[0]
show_messages(quiet="quiet" in sys.argv)
reporter = Reporter()
hostile = "[b]a\\x1b[2J"
reporter.expect({hostile: (0, 100, 1.0), "b": (0, 100, 3.0)})
for name, seconds in ((hostile, 0.3), ("b", 0.9)):
    with reporter.training(name, 100) as show:
        for update in range(1, 101):
            now[0] += seconds
            show({"kind": "update", "update": update})
            if update == 100:
                show({"kind": "valid", "update": 100, "seconds": 1.0, "loss": 1.0, "bleu": 1.0})
                logging.getLogger("compare.somewhere").info(f"{hostile}\\nerror: forged")
for each in track(range(10), "checking", "runs"):
    now[0] += 5
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("quiet", [False, True])
def test_on_a_terminal_bars_move_with_every_update_and_tell_the_time_left(quiet: bool):
    """The time that is said is the true one, though validations come only at the end of a run.

    Neither the name of a run nor a message is obeyed, by the terminal or as markup.
    """
    import pty

    master, terminal = pty.openpty()
    command = [sys.executable, "-c", TERMINAL, *(["quiet"] if quiet else [])]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stderr=terminal, env=environment) as process:
        os.close(terminal)
        screen = b""
        with suppress(OSError):  # the end, on Linux
            while data := os.read(master, 65_536):
                screen += data
    os.close(master)
    assert process.returncode == 0
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode()).splitlines()]
    assert not quiet or lines == []
    if not quiet:
        assert max(map(len, lines)) <= 80
        name = r"[b]a\x1b[2J"
        counts = [re.match(rf"{re.escape(name)} +\S+ (\d+) of 100", line) for line in lines]
        updates = {match[1] for match in counts if match}
        assert updates >= set(map(str, range(1, 101)))
        left = re.findall(r"all 2 runs +\S+ (\d+)% +(\d+) s left", "\n".join(lines))
        assert len(left) > 50
        assert all(abs(int(seconds) - 1.2 * (100 - int(share))) < 2 for share, seconds in left)
        assert f"{name}: update 100 of 100, 1 s: validation loss 1.000, BLEU 1.00" in lines
        assert rf"{name}\nerror: forged" in lines
        assert b"\x1b[2J" not in screen
        assert any(re.match(r"checking +\S+ 4 of 10 runs 30 s left", line) for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (99, "99 s"), (101, "2 min"), (5_900, "98 min"), (12_600, "3.5 h")]
)
def test_durations(seconds: float, text: str):
    assert format_duration(seconds) == text
