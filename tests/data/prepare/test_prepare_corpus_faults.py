"""Errors while a corpus is prepared: one line of message and no partial folder; standard input and pipes."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data.files import new_folder
from data.formats import TwoFiles
from data.prepare import Filters, PreparationPlan, prepare_corpus
from tests.kits.cli import Refusal, real
from tests.kits.raw_data import lines, made_up, refused, two_files, write


def plan_of(src: Path, tgt: Path) -> PreparationPlan:
    return PreparationPlan(
        sources=[TwoFiles(src=src, tgt=tgt)], langs=("en", "de"), filters=Filters(), fixed_splits={}
    )


def test_standard_input_is_read_once_for_both_passes(tmp_path: Path):
    pairs = made_up(60)
    text = "".join(json.dumps({"s": src, "t": tgt}) + "\n" for src, tgt in pairs)
    done = real("data", "prepare", "-", "--fields", "s,t", "--out", tmp_path / "x", stdin=text)
    assert done.returncode == 0, done.stderr
    assert "written  train 48, valid 6, test 6" in done.stdout
    assert f"next: attnbench run {tmp_path / 'x'}/experiment.toml --out runs/x" in done.stderr
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert [(each["path"], each["bytes"]) for each in manifest["inputs"]] == [
        ("standard input", len(text.encode()))
    ]
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == sorted(
        [*manifest["outputs"], "experiment.toml", "manifest.json"]
    )
    done = real("data", "check", "-", "--columns", "2,1", "-q", stdin="a\tb\n\t\nc d\te\n")
    assert (done.returncode, done.stderr) == (1, "")
    assert "corpus: 3 pairs" in done.stdout
    assert "a blank side                     1  line 2\n" in done.stdout


def test_a_named_pipe_can_be_read(tmp_path: Path):
    src, tgt = two_files(tmp_path, made_up(40))
    pipe = tmp_path / "pipe.en"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=lambda: pipe.write_bytes(src.read_bytes()))
    feeder.start()
    prepare_corpus(plan_of(pipe, tgt), tmp_path / "piped", lambda *_: "")
    feeder.join()
    prepare_corpus(plan_of(src, tgt), tmp_path / "plain", lambda *_: "")
    assert (tmp_path / "piped" / "train.en").read_bytes() == (tmp_path / "plain" / "train.en").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["0 files: expected source and target in turn", "--columns", "--fields"]),
        (["a.en"], ["1 files"]),
        (["a.en", "a.en"], ["a.en is given as source and as target"]),
        (["a.en", "a.de", "b.de", "b.en"], ["b.de is given as a source and a.en too", "name b.en first"]),
        (["a.en", "--src", "b"], ["--src names 1 files, --tgt 0, and 1 are without"]),
        (["-", "-"], ["named twice"]),
        (["a.jsonl"], ["--fields (none)", "translation.en"]),
        (["a.jsonl", "--fields", "en"], ["--fields en:"]),
        (["a.tsv", "--columns", "0,1"], ["--columns 0,1:", "from 1 on"]),
        (["a.tsv", "--columns", "1,1"], ["different"]),
        (["a.tsv", "--columns", "1,en"], ["--columns 1,en:", "names of the first line"]),
        (["a.tsv", "--columns", "1,2", "--fields", "a,b"], ["give one of them"]),
        (["a.en", "a.de", "--langs", "en"], ["--langs en:"]),
        (["a.en", "a.de", "--langs", "en,../de"], ["--langs en,../de:"]),
        (["a.en", "a.de", "--max-ratio", "0.5"], ["max_ratio must be 0 or at least 1, found 0.5"]),
        (["a.en", "a.de", "--drop-overlap"], ["--drop-overlap is for a folder"]),
        (["a.en", "gone.de"], ["gone.de: no such file"]),
        (["a.en", "."], [".: this is a folder"]),
        (["."], ["train files end in nothing known", "--langs"]),
        ([".", "--columns", "1,2"], ["is a folder", "are for files"]),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    monkeypatch.chdir(tmp_path)
    for stem in ("a", "b"):
        two_files(tmp_path, made_up(20), stem)
    before = sorted(tmp_path.iterdir())
    message = refusal("data", "prepare", *arguments, "--out", "new", "-q")
    assert all(part in message for part in parts), message
    assert sorted(tmp_path.iterdir()) == before


def test_existing_files_are_not_overwritten(tmp_path: Path, refusal: Refusal):
    src, tgt = two_files(tmp_path, made_up(20))
    assert "--out is missing" in refusal("data", "prepare", src, tgt)
    assert "holds something already" in refusal("data", "prepare", src, tgt, "--out", tmp_path)
    assert "holds something already" in refusal("data", "prepare", src, tgt, "--out", src)
    (tmp_path / "empty").mkdir()
    prepare_corpus(plan_of(src, tgt), tmp_path / "empty", lambda *_: "")
    assert (tmp_path / "empty" / "train.en").is_file()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_nothing(tmp_path: Path, error: BaseException):
    src, tgt = two_files(tmp_path, made_up(20))

    def fail(*_: object) -> str:
        raise error

    with pytest.raises(type(error)) as caught:
        prepare_corpus(plan_of(src, tgt), tmp_path / "out", fail)
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == sorted([src, tgt])


@pytest.mark.parametrize("change", ["grown", "cut", "touched", "gone"])
def test_a_file_that_changes_between_the_passes_is_an_error(tmp_path: Path, change: str):
    src, tgt = two_files(tmp_path, made_up(50))

    def meddle(name: str, done: int, _total: int | None) -> None:
        """Change the source before the second pass."""
        if (name, done) == ("writing", 0):
            content = src.read_bytes()
            {
                "grown": lambda: src.write_bytes(content + b"one more\n"),
                "cut": lambda: src.write_bytes(content[: len(content) // 2]),
                "touched": lambda: os.utime(src, ns=(1, 1)),
                "gone": src.unlink,
            }[change]()

    refused(
        lambda: prepare_corpus(plan_of(src, tgt), tmp_path / "out", lambda *_: "", progress=meddle),
        f"{src}: no such file" if change == "gone" else f"{src} was changed while it was read",
    )
    assert not list(tmp_path.glob("*out*"))


def test_a_killed_process_leaves_no_folder_and_the_next_one_succeeds(tmp_path: Path):
    src, tgt = two_files(tmp_path, made_up(3_000) * 60)
    command = [sys.executable, "-m", "compare", "data", "prepare", str(src), str(tgt), "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "out")], stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(".out.*.tmp")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    small = two_files(tmp_path, made_up(30), "small")
    prepare_corpus(plan_of(*small), tmp_path / "out", lambda *_: "")
    assert (tmp_path / "out" / "manifest.json").is_file()


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path):
    out = tmp_path / "deep" / "out"
    with new_folder(out) as folder:
        write(folder / "x", lines(["text"]))
        assert not out.exists()
        number = folder.stat().st_ino
    assert out.stat().st_ino == number  # renamed, not copied file by file
    assert [path.read_text() for path in out.iterdir()] == ["text\n"]
    assert list(out.parent.iterdir()) == [out]
