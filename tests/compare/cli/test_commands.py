"""The command line: what each command prints, and how it answers Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import compare
from compare.cli import main
from compare.models.presets import PRESETS
from compare.models.registry import build, forward_flops
from compare.system.messages import program_name

# --- what the commands print


def test_the_presets_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["models"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] != []]
    listed = {line.split()[0]: line for line in lines if line.split()[0] in PRESETS}
    assert list(listed) == sorted(PRESETS, key=lambda name: PRESETS[name].paper_size)
    assert all(PRESETS[name].source in line for name, line in listed.items())
    assert main(["models", "--json"]) == 0
    assert [row["preset"] for row in json.loads(capsys.readouterr().out)] == list(PRESETS)


def test_a_preset_is_taken_apart(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "luong-local-p", "--vocabulary", "50"]) == 0
    out = capsys.readouterr().out
    assert "scope = local-p" in out
    assert "score = general" in out
    for departure in PRESETS["luong-local-p"].departures or ():
        assert f"{departure.part}: {departure.here}; in the paper: {departure.paper}" in out
    assert re.search(r"^ +output +Linear +12,850$", out, re.MULTILINE)  # 256 x 50 + 50
    assert main(["models", "luong-local-p", "--vocabulary", "50", "--json"]) == 0
    description = json.loads(capsys.readouterr().out)
    architecture = PRESETS["luong-local-p"].architecture
    weights = sum(weight.numel() for weight in build(architecture, 50, 50).parameters())
    assert description["tree"][0]["params"] == description["params"] == weights
    assert description["forward_flops"] == forward_flops(
        architecture, src_len=20, tgt_len=20, tgt_vocabulary=50
    )
    assert f"{weights / 1e6:,.2f} million weights with 50 entries per side" in out


@pytest.mark.parametrize("command", ["table", "score", "data check"])
def test_the_help_shows_no_type_of_python(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([*command.split(), "--help"]) == 0
    assert not re.search(r"list\[|\bNone\b| range>", out := capsys.readouterr().out)
    assert "<path>..." in out


def test_figures_and_columns_are_listed_without_torch():
    for command in (["plot", "--list"], ["table", "--list"]):
        code = f"import sys; from compare.cli import main; main({command}); sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_commands_to_copy_begin_with_the_program_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    python, script = tmp_path / "python", tmp_path / "attnbench"
    for program in (python, script):
        program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(python))
    for started, on_path, expected in (
        (script, True, "attnbench"),
        (script, False, "attnbench"),  # relative to the working directory
        ("/any/compare/__main__.py", True, "python -m compare"),
        ("/any/pytest/__main__.py", True, "attnbench"),
    ):
        monkeypatch.setenv("PATH", str(tmp_path) if on_path else "")
        monkeypatch.setattr(sys, "argv", [str(started)])
        assert program_name() == expected


# --- messages


@pytest.mark.parametrize("arguments", [[], ["table"], ["data"]])
def test_a_mistaken_argument_is_shown_and_not_obeyed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main([*arguments, "--\x1b[31mred\x1b[0m\u202e"]) == 2
    error = capsys.readouterr().err
    assert r"\x1b[31mred\x1b[0m\u202e" in error
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", error)


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
    message = "stopped; finished work is kept: run the same command again to do the rest\n"
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
