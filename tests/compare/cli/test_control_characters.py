"""The command line shows escape sequences of file names, arguments and texts instead of obeying them."""

import ast
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.cli import main
from compare.system.log import Reporter, log_to_file
from tests.compare.system.test_log import LOGGER
from tests.kits.cli import ROWS, Refusal
from tests.kits.hostile import ESCAPE, obeyed
from tests.kits.paths import ROOT

SHOWN = r"\x1b[31mred\x1b[0m"


def test_a_file_name_in_an_error(tmp_path: Path, refusal: Refusal):
    message = refusal("table", tmp_path / f"{ESCAPE}\u202e")
    assert f"{SHOWN}\\u202e holds no runs" in message


def test_an_error_of_the_system(tmp_path: Path, refusal: Refusal, tiny_toml: Path):
    (tmp_path / ESCAPE).touch()
    assert SHOWN in refusal("run", tiny_toml, "--out", tmp_path / ESCAPE / "x", "-q")


@pytest.mark.parametrize("arguments", [[], ["table"], ["data"]])
def test_a_mistaken_argument(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([*arguments, f"--{ESCAPE}\u202e"]) == 2
    error = capsys.readouterr().err
    assert f"{SHOWN}\\u202e" in error
    assert not any(map(obeyed, error.split("\n")))


def test_a_row_of_a_table(copy: Path, capsys: pytest.CaptureFixture[str]):
    path = copy / ROWS[0] / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "failed", "reason": ESCAPE}))
    for form in ("markdown", "csv", "json", "latex"):
        assert main(["table", str(copy), "--form", form]) == 0
        assert not any(map(obeyed, capsys.readouterr().out.split("\n")))


def test_a_file_name_that_check_reports_and_tables_that_it_reads_back(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    path = copy / ROWS[0] / "result.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {"device": "=1\r\x1b", "data_hash": f"{ESCAPE}\nx"}))
    for form, suffix in (("csv", "csv"), ("markdown", "md"), ("json", "json")):
        assert main(["table", str(copy), "--form", form, "--columns", "label,device"]) == 0
        assert "=1" in capsys.readouterr().out
        (copy / f"table.{suffix}").unlink(missing_ok=True)
    from compare.report.views import write_views

    write_views(copy)
    assert main(["check", str(copy), "-q"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert not any(map(obeyed, lines))
    assert any(f"recorded {SHOWN}\\nx" in line for line in lines)
    assert not any(line.startswith("table.") for line in lines)


def test_a_file_name_in_a_result(copy: Path, capsys: pytest.CaptureFixture[str]):
    path = copy / ROWS[0] / "result.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {"files": {**row["files"], f"{ESCAPE}\nx": "0"}}))
    assert main(["check", str(copy), "-q"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(SHOWN in line for line in lines)
    assert not any(map(obeyed, lines))


def test_a_line_of_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for language in ("de", "en"):
        (tmp_path / f"x.{language}").write_bytes(b"a b\n\x1b[31mred \xc2\x9b2J \xe2\x80\xae\nc d\n")
    main(["data", "check", str(tmp_path / "x.de"), str(tmp_path / "x.en"), "-q"])
    assert not any(map(obeyed, capsys.readouterr().out.split("\n")))


def test_a_message(show_log: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    show_log()
    with log_to_file(tmp_path / "log.txt"):
        LOGGER.info(f"{ESCAPE}\nerror: forged")
        LOGGER.warning("\x9b")
    assert capsys.readouterr().err == f"{SHOWN}\\nerror: forged\nwarning: \\u009b\n"
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("unit", ["training", "pairs"])
def test_a_label_beside_a_bar(unit: str, monkeypatch: pytest.MonkeyPatch):
    stream, label = Terminal(), "[blink]a[/blink] [/x] \x1b[2J\x07"
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    if unit == "training":
        with Reporter().training(label, 10) as show:
            show({"kind": "train", "update": 5, "loss": 1.0, "tokens_per_s": 5.0})
    else:
        with Reporter().pairs() as progress:
            progress(label, 1, 2)
    assert r"[blink]a[/blink] [/x] \x1b[2J\x07" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()


def test_only_translations_are_printed_as_they_are():
    """Every other output goes through ``print_visible``."""
    calls = {
        path.name: sum(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
        for path in (ROOT / "compare" / "cli").glob("*.py")
    }
    assert {name: count for name, count in calls.items() if count} == {"app.py": 1, "text.py": 1}
