"""Readers that leave, terminals without Unicode; and the page that lists all faults."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from compare.cli import main
from compare.results.result import Result
from tests.kits.faults import ROOT, as_documented, environment, faults


@pytest.mark.parametrize("command", ["table", "models"])
def test_a_reader_that_leaves(finished: Path, command: str):
    """Before anything is written, of which there is less than Python holds back, and more."""
    read, write = os.pipe()
    os.close(read)
    arguments = [command, *([str(finished)] if command == "table" else [])]
    done = subprocess.run(
        [sys.executable, "-m", "compare", *arguments],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        check=False,
    )
    os.close(write)
    as_documented("closed pipe", done.returncode, done.stderr)


def test_the_first_line_of_a_table(finished: Path):
    command = f"'{sys.executable}' -m compare table '{finished}' | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("| model")
    assert done.stdout.count("\n") == 1


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """An experiment whose one row has a label that ASCII cannot write, and no figures."""
    folder = tmp_path / "experiment" / "größe😀-seed1"
    folder.mkdir(parents=True)
    row = Result(label="größe😀", preset="lstm", seed=1, status="failed", reason="±1")
    (folder / "result.json").write_text(row.to_json())
    return folder.parent


def ascii_terminal(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "compare", *map(str, arguments)],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    as_documented("terminal without Unicode", done.returncode, done.stderr.decode("ascii"))
    return done.stdout.decode("ascii")


def test_a_terminal_without_unicode(foreign: Path):
    (row,) = json.loads(ascii_terminal("table", foreign, "--json"))
    assert row["label"] == "größe😀"
    line = ascii_terminal("table", foreign).splitlines()[2]
    assert r"gr\u00f6\u00dfe\ud83d\ude00" in line
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert set(cells[1:-1]) == {"-"}
    assert cells[-1] == "failed: +/-1"


class Echo:
    """A model that translates every sentence to itself."""

    def translate(self, lines: Sequence[str], beam_size: int | None) -> Sequence[str]:
        return lines

    def count_unknown(self, lines: Sequence[str]) -> int:
        return 0


def test_translations_are_utf8_on_any_terminal(monkeypatch: pytest.MonkeyPatch):
    sentences = "Das Öl heißt 油.\n😀\n\nx\u2028y\n"
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("compare.results.trained_model.load_model", lambda *_: Echo())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sentences.encode()), encoding="ascii"))
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["translate", "run"]) == 0
    assert out.buffer.getvalue().decode() == sentences


def test_a_sentence_that_is_not_utf8_is_named(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr("compare.results.trained_model.load_model", lambda *_: Echo())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n")))
    assert main(["translate", "run"]) == 2
    assert capsys.readouterr().err == "error: standard input, line 2: not UTF-8 (invalid start byte)\n"


def test_an_escape_sequence_in_a_file_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    status = main(["table", str(tmp_path / "\x1b[31mred")])
    as_documented("escape sequence in a file name", status, capsys.readouterr().err)


# --- the page


def test_every_fault_of_the_page_is_made_by_its_test():
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    modules = {path.stem: text for path, text in sources.items()}
    functions = set(re.findall(r"^def (test_\w+)", "\n".join(sources.values()), re.MULTILINE))
    listed = faults()
    assert len(listed) > 15
    for name, fault in listed.items():
        assert fault.test in functions | modules.keys(), name
        assert fault.test in modules or any(f'"{name}"' in text for text in sources.values()), name


def test_a_page_that_says_otherwise_is_found():
    with pytest.raises(AssertionError):
        as_documented(
            "line of 1 GB", 2, "error: x, line 2: over 1,048,576 bytes; expected one sentence per line\n"
        )
    with pytest.raises(AssertionError):
        as_documented("closed pipe", 1, "Traceback\n")
    with pytest.raises(AssertionError):
        as_documented(
            "config of 10 MB", 0, "error: x: over 1,000,000 bytes: too large for an experiment file\n"
        )
