"""Mistakes in config, corpus, folder or options: one line, exit status 2, and nothing is lost or left."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from compare.cli import main
from tests.kits.common import ROWS, Refusal


def test_folders_without_runs(tmp_path: Path, finished: Path, refusal: Refusal):
    assert "no config.toml: name the folder of one run" in refusal("translate", tmp_path)
    assert f"name the folder of one run, such as {finished / ROWS[0]}" in refusal("translate", finished)
    for command in ("table", "plot", "translate", "score"):
        absent = finished / ROWS[0].replace("seed", "sead")
        assert refusal(command, absent) == f"{absent}: no such folder; {finished} has {ROWS[0]}"
    assert refusal("score", tmp_path / "absent.de") == f"{tmp_path / 'absent.de'}: no such file"


def test_the_parent_of_a_corpus_is_taken_for_it(tiny_toml: Path, capsys: pytest.CaptureFixture[str]):
    parent = tiny_toml.parent
    assert main(["run", str(tiny_toml), "--dry-run", "--set", f"data.root={parent}"]) == 0
    assert f"using the corpus in {parent / 'corpus'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "Start:"),
        (["bench", "x.toml", "--updates", "0"], "error: Invalid value for '--updates'"),
        (["table", "x", "--fromat", "csv"], "error: No such option: --fromat"),
        (["traiin"], "error: no command 'traiin'; did you mean run?"),
        (["demo"], "error: no command 'demo': use attnbench run demo"),
        (["contrast"], "error: no command 'contrast': use attnbench study contrastive"),
    ],
)
def test_usage_is_explained(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert part in captured.err
    assert (captured.err.count("\n") == 1) == bool(arguments)
    assert "Traceback" not in captured.err


def test_a_fault_of_ours_is_not_passed_off_as_the_users_nor_a_lack_of_memory_as_ours(
    tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    references = str(tiny_toml.parent / "corpus" / "test.de")
    command = ["score", references, "--ref", references]
    monkeypatch.setattr("compare.scoring.score_texts", Mock(side_effect=[KeyError("key"), MemoryError]))
    with pytest.raises(KeyError):
        main(command)
    assert main(command) == 1
    assert capsys.readouterr().err.startswith("error: not enough memory")


def test_closed_streams_are_empty_ones(monkeypatch: pytest.MonkeyPatch):
    """As in ``attnbench translate RUN <&-`` and ``attnbench table EXPERIMENT >&-``."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(["models"]) == 0
    with sys.stdin, sys.stdout, sys.stderr:
        assert sys.stdin.buffer.read() == b""


# --- run: mistakes in the config and on the command line


def test_a_config_that_is_no_file(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    config = tmp_path / "edited.toml"
    config.write_text(tiny_toml.read_text().replace("valid_every", "valid_evry"))
    for command in ("run", "bench"):
        assert refusal(command, tmp_path / "no.toml") == (
            f"{tmp_path / 'no.toml'}: no such file; did you mean 'edited.toml'?"
        )
        assert refusal(command, tmp_path) == f"{tmp_path} is a folder: name the TOML file of an experiment"
        assert refusal(command, config).startswith(f"{config}: unknown key 'train.valid_evry'; did you mean")
    for content, part in {
        b'x = "gr\xf6\xdfe"': ", line 1: 0xf6 is not UTF-8: save the file as UTF-8",
        b"[train]\n[train]\n": "write each key and each [table] once",
        b"x = C:\\data\n": "put text in quotes",
    }.items():
        config.write_bytes(content)
        assert part in refusal("run", config)
    assert list(tmp_path.iterdir()) == [config]


def test_no_other_file_of_the_user_is_replaced(
    tiny_toml: Path, finished: Path, tmp_path: Path, refusal: Refusal
):
    mine = tmp_path / "mine.toml"
    mine.write_text("mine")
    for command in (["report", finished], ["bench", tiny_toml]):
        assert f"--out {mine}: name a file that ends with ." in refusal(*command, "--out", mine)
    text = tiny_toml.parent / "corpus" / "test.de"
    command = ["score", finished / ROWS[0], "--src", text, "--ref", text, "--out", mine]
    assert refusal(*command) == f"{mine} is a file; name a folder with --out"
    assert "Not a directory: a part of this path is a file" in refusal("run", tiny_toml, "--out", mine / "x")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("train.batch_tokens=5", "batch_tokens (5) must hold the longest target (8 tokens with EOS)"),
        ("data.max_tokens=1", "max_tokens (1) drops all 400 pairs"),
        ("data.tgt=fr", "has no counterpart train.fr"),
        ("vocabulary.kind=unigram vocabulary.size=100", "bytes and characters alone need "),
        ("budget.match=params budget.reference=lstm", "budget.reference 'lstm' is not a model of this"),
        ("scoring.baseline=luon", "'luon' is not a model of the experiment; did you mean 'luong'?"),
        (
            'scoring.baseline=luong scoring.pairs=[["luon","vanilla"]]',
            "scoring.pairs: 'luon' is not a model of the experiment; did you mean 'luong'?",
        ),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_setting_that_cannot_be_leaves_nothing(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, setting: str, part: str, dry_run: bool
):
    """Found in the config, in the corpus, in the vocabulary or once all is encoded: no folder is left."""
    command = ["run", tiny_toml, "--out", tmp_path / "a" / "b", "-q"]
    command += [word for assignment in setting.split() for word in ("--set", assignment)]
    assert part in refusal(*command, *(["--dry-run"] if dry_run else []))
    assert not list(tmp_path.iterdir())


def test_a_place_that_is_no_folder(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    (tmp_path / "file").write_text("mine")
    assert "is not a folder" in refusal("run", tiny_toml, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
