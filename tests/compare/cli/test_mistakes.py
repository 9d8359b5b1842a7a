"""Mistakes with the other commands: one line and exit status 2, in a real process too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compare.cli import main
from tests.kits.cli import ROWS, Refusal, real


def test_folders_without_runs(tmp_path: Path, finished: Path, refusal: Refusal):
    for folder in (tmp_path, tmp_path / "absent"):
        for command in ("table", "plot"):
            assert "holds no runs" in refusal(command, folder)
    for folder in (tmp_path, tmp_path / "absent", finished):
        assert "no config.toml: give the folder of one run" in refusal("translate", folder)


def test_scores_of_two_signatures(finished: Path, copy: Path, refusal: Refusal):
    path = copy / ROWS[1] / "result.json"
    path.write_text(path.read_text().replace("case:mixed", "case:lc"))
    for folders in ([copy], [copy / ROWS[1], finished]):
        assert "comparable under one signature only" in refusal("table", *folders)


def test_names_of_forms_and_columns(finished: Path, refusal: Refusal):
    assert "choose markdown, csv, json" in refusal("table", finished, "--form", "xml")
    assert "exclude each other" in refusal("table", finished, "--format", "latex", "--json")
    assert "--caption has no effect on csv" in refusal("table", finished, "--format=csv", "--caption=x")
    assert "is a folder: name a file" in refusal("report", finished, "--out", finished)
    assert "did you mean 'bleu'?" in refusal("table", finished, "--columns", "label,blue")
    assert "line 9 is not in the test set" in refusal("plot", finished, "-q", "--line", "9")
    assert "line 0 is not in the test set" in refusal("plot", finished, "-q", "--line", "0")


def test_texts_that_cannot_be_scored(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    corpus = tiny_toml.parent / "corpus"
    message = refusal("score", corpus / "test.de", "--ref", corpus / "train.de")
    assert "test.de has 8 lines but" in message
    assert "train.de has 400: line i of one must translate" in message
    assert "no such file" in refusal("score", tmp_path / "absent", "--ref", corpus / "test.de")
    (tmp_path / "empty").touch()
    assert "is empty" in refusal("score", tmp_path / "empty", "--ref", corpus / "test.de")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "Commands:"),
        (["run"], "Missing argument"),
        (["rnu"], "Did you mean 'run'?"),
        (["run", "x.toml", "--dryrun"], "No such option: --dryrun"),
        (["bench", "x.toml", "--updates", "0"], "--updates"),
        (["translate", "x", "--beam", "0"], "--beam"),
        (["table"], "Missing argument"),
    ],
)
def test_usage_is_explained(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert part in captured.err
    assert "Usage:" in captured.err
    assert "Traceback" not in captured.err


def test_a_fault_of_ours_is_not_passed_off_as_the_users(tiny_toml: Path, monkeypatch: pytest.MonkeyPatch):
    def faulty(*_: object, **__: object) -> None:
        raise KeyError("key")

    monkeypatch.setattr("compare.scoring.score.score_texts", faulty)
    references = str(tiny_toml.parent / "corpus" / "test.de")
    with pytest.raises(KeyError):
        main(["score", references, "--ref", references])


def test_a_real_process_ends_with_status_2_and_one_line(tmp_path: Path):
    done = real("table", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {tmp_path} holds no runs")


def test_a_reader_that_leaves_early_is_no_mistake():
    """As in `attnbench models | head -0`: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "compare", "models"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
