"""The command line: what each command prints, and what people see of training."""

import io
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import compare
from compare.cli import main
from compare.models.presets import PRESETS
from compare.models.registry import build, forward_flops
from compare.system.log import Reporter, log_to_file
from tests.kits.hostile import ESCAPE, obeyed

SHOWN = r"\x1b[31mred\x1b[0m"


# --- what the commands print


def test_the_presets_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["models"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] != []]
    found = {line.split()[0]: line for line in lines if line.split()[0] in PRESETS}
    assert list(found) == sorted(PRESETS, key=lambda name: PRESETS[name].paper_size)
    assert all(PRESETS[name].source in line for name, line in found.items())
    assert main(["models", "--json", "--vocabulary", "5000"]) == 0
    rows = {row["preset"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(PRESETS)
    row, architecture = rows["transformer"], PRESETS["transformer"].architecture
    made = build(architecture, 5000, 5000)
    assert row["params"] == sum(weight.numel() for weight in made.parameters())
    assert row["forward_flops"] == forward_flops(architecture, src_len=20, tgt_len=20, tgt_vocabulary=5000)


def test_a_preset_is_taken_apart(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "luong-local-p", "--vocabulary", "50"]) == 0
    out = capsys.readouterr().out
    assert "scope = local-p" in out
    assert "score = general" in out
    assert re.search(r"^ +output +Linear +12,850$", out, re.MULTILINE)  # 256 x 50 + 50
    assert main(["models", "luong-local-p", "--vocabulary", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tree"][0]["params"] == sum(
        weight.numel() for weight in build(PRESETS["luong-local-p"].architecture, 50, 50).parameters()
    )


# --- messages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_shows_a_bar_and_names_are_not_obeyed(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, show_log: Callable[..., None]
):
    """Lines above the bar, nothing when quiet; the log gets every line but the bar's."""
    stream, label = Terminal(), "[blink]a[/blink] [/x] \x1b[2J\x07"
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    show_log(quiet=quiet)
    reporter = Reporter()
    with log_to_file(tmp_path / "log.txt"), reporter.training(label, 2) as report:
        report({"kind": "train", "update": 1, "seconds": 1.0, "loss": 2.5, "tokens_per_s": 1234.0})
        report({"kind": "valid", "update": 2, "seconds": 1.0, "loss": 2.25, "bleu": 12.0})
        logging.getLogger("compare.somewhere").info(f"[red]as it is[/red] {ESCAPE}\nerror: forged")
    shown, log = stream.getvalue(), (tmp_path / "log.txt").read_text()
    for text in (r"[blink]a[/blink] [/x] \x1b[2J\x07", "BLEU 12.00", rf"[red]as it is[/red] {SHOWN}\nerror"):
        assert (text in shown) is not quiet
    assert ("━" in shown) is not quiet
    assert "\x1b[2J" not in shown
    assert "validation loss 2.250, BLEU 12.00" in log
    assert "as it is" in log


@pytest.mark.parametrize("arguments", [[], ["table"], ["data"]])
def test_a_mistaken_argument_is_shown_and_not_obeyed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main([*arguments, f"--{ESCAPE}\u202e"]) == 2
    error = capsys.readouterr().err
    assert f"{SHOWN}\\u202e" in error
    assert not any(map(obeyed, error.split("\n")))


# --- the process


PROGRAM = """
import atexit, os, signal, sys
import compare.cli
from compare.__main__ import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
{}
sys.exit(main())
"""


def test_ctrl_c_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "diagnose", interrupt)
    assert main(["doctor"]) == 130
    message = "stopped; what was finished is kept: the same command again does the rest\n"
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("compare.cli.main = lambda: os.kill(os.getpid(), signal.SIGINT) or 0", 130),
        (
            "compare.cli.main = lambda: 130\natexit.register(os.kill, os.getpid(), signal.SIGINT)",
            -signal.SIGINT,
        ),
    ],
)
def test_a_second_interrupt_prints_no_traceback(code: str, status: int):
    """The first case is Ctrl-C while another one is handled, the second Ctrl-C while Python ends."""
    command = [sys.executable, "-c", PROGRAM.format(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
