"""Faults of files, disks and terminals: a command says one line, and nothing else is lost."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch

import compare.scoring
import data.corpus
from compare.cli import main
from compare.decoding.translator import Translation
from compare.report.publish import publish_experiment
from compare.results.store import Result
from data.text import read_lines
from tests.kits.common import ROOT, ROWS, Refusal
from tests.kits.experiments import edit_text

RUN = ROWS[0]
WEIGHTS = "checkpoints/final.safetensors"


FAULTS: dict[str, tuple[str, int]] = {
    "full disk": ("error: ...: No space left on device", 2),
    "output to a full disk": ("error: standard output: No space left on device", 2),
    "read-only folder": ("error: ...: Read-only file system", 2),
    "read-only or published experiment": ("error: ... is ...: ...", 2),
    "another corpus for a finished experiment": (
        "error: ...: the corpus is not that of the runs ...; point to your copy ... data.root=FOLDER",
        2,
    ),
    "damaged .gz": ("error: ...: damaged or incomplete .gz file (...); download or pack it again", 2),
    "publishing of changed files": (
        "error: ... has changed since its result was computed: restore it, ...",
        2,
    ),
    "file changed while it is read": (
        "error: ... changed while it was being read; run the command again ...",
        2,
    ),
    "vocabulary of another run": (
        "error: .../vocabulary.json is not the file that this run was trained with ...: restore ...",
        2,
    ),
    "vocabulary of another run, resumed": (
        "error: ... has the vocabulary of another run: restore its own, ...",
        2,
    ),
    "truncated weights": ("error: .../final.safetensors: not a readable safetensors file ...: delete ...", 2),
    "folder where a text should be": ("error: ... is a folder; name a file", 2),
    "weights other than those recorded": (
        "error: ... are not the weights of this run's result ...: restore ...",
        2,
    ),
    "damaged choice of a length penalty": (
        "error: .../selection.json: ...: restore the original selection.json, or delete it ...",
        2,
    ),
    "model that the memory cannot hold": (
        "error: ...: needs ... GiB for weights, ... this machine has ... GiB: lower ...",
        2,
    ),
    "closed pipe": ("", 1),
    "terminal without Unicode": ("", 0),
    "escape sequence in a file name": ("error: .../\\x1b[31m...: no such folder; ...", 2),
    "damaged result, config or log": ("error: ...", 2),
}
"""The message and the exit status by fault; "..." stands for a path, a number or a reason."""


def assert_seen(fault: str, status: int, err: str) -> None:
    """Assert that exit status and standard error are those of ``FAULTS``."""
    sees, expected = FAULTS[fault]
    pattern = ".+".join(map(re.escape, sees.split("...")))
    pattern = f"{pattern}.+" if sees == "error: ..." else pattern
    assert re.fullmatch(pattern, err.removesuffix("\n")), err
    assert err.count("\n") == bool(sees)
    assert status == expected


class Files(NamedTuple):
    """Folders and files to damage, and the names that commands use for them."""

    folder: Path
    """A finished experiment."""
    run: Path
    config: Path
    corpus: Path
    out: Path
    """Nothing is there yet."""


@pytest.fixture
def files(copy: Path, tiny_toml: Path, tmp_path: Path) -> Files:
    config = Path(shutil.copy(tiny_toml, tmp_path))
    corpus = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    return Files(copy, copy / RUN, config, corpus, tmp_path / "out")


# Damages


def cut(path: Path, size: int = -20) -> None:
    path.write_bytes(path.read_bytes()[:size])


def swap_words(files: Files) -> None:
    """A vocabulary of the same size, under which every weight fits and two words are exchanged."""
    path = files.run / "vocabulary.json"
    path.write_text(path.read_text().replace("dog", "cta").replace("cat", "dog").replace("cta", "cat"))


def unfinish(files: Files) -> None:
    """Let ``run`` read the trainer state again."""
    (files.run / "result.json").unlink()


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def negate_a_weight(files: Files) -> None:
    weights = safetensors.torch.load_file(files.run / WEIGHTS)
    name = min(weights)
    safetensors.torch.save_file({**weights, name: -weights[name]}, files.run / WEIGHTS)


Damage = Callable[[Files], object]
RUN_AGAIN = "run {config} --out {folder} -q"
RUN_OUT = "run {config} --out {out} -q"
CASES: list[tuple[str, Sequence[Damage], Sequence[str]]] = [
    (
        "read-only or published experiment",
        [lambda p: publish_experiment(p.folder, p.out)],
        [RUN_OUT, "report {out} -q", "plot {out} -q"],
    ),
    (
        "another corpus for a finished experiment",
        [lambda p: edit_text(p.corpus / "train.de", "Hund", "Hunde")],
        ["report {folder} --out {out}.html --set data.root={corpus} -q"],
    ),
    (
        "damaged .gz",
        [lambda p: publish_experiment(p.folder, p.out), lambda p: cut(p.out / RUN / "test.hyp.gz")],
        [f"score {{out}}/{RUN}/test.hyp.gz --ref {{corpus}}/test.de"],
    ),
    (
        "publishing of changed files",
        [lambda p: (p.run / "test.hyp").write_text("rot\n" * 8)],
        ["publish {folder} --out {out}"],
    ),
    ("vocabulary of another run", [swap_words], ["translate {run}"]),
    ("vocabulary of another run, resumed", [swap_words, unfinish], [RUN_AGAIN]),
    ("truncated weights", [lambda p: cut(p.run / WEIGHTS, 0)], ["translate {run}", "plot {folder} -q"]),
    ("truncated weights", [lambda p: cut(p.run / WEIGHTS, -1)], ["translate {run}"]),
    (
        "folder where a text should be",
        [lambda p: put_folder(p.corpus / "train.de")],
        ["score {corpus}/test.de --ref {corpus}/train.de"],
    ),
    ("weights other than those recorded", [negate_a_weight], ["translate {run}"]),
    (
        "damaged choice of a length penalty",
        [lambda p: cut(p.run / "selection.json"), unfinish],
        ["translate {run}", RUN_AGAIN],
    ),
    (
        "model that the memory cannot hold",
        [],
        [RUN_OUT + " --set models.luong.hidden_size=1000000" + dry for dry in ("", " --dry-run")],
    ),
    ("escape sequence in a file name", [], ["table {out}/\x1b[31mred"]),
    *(
        (
            "damaged result, config or log",
            [lambda p, name=name, text=text: (p.run / name).write_text(text)],
            commands,
        )
        for (name, text), commands in {
            ("result.json", "{"): ["table {folder}", "translate {run}", RUN_AGAIN],
            ("result.json", "{}"): ["table {folder}"],
            ("config.toml", "[data]\nx = 1"): ["translate {run}", RUN_AGAIN],
            ("metrics.jsonl", '{"kind": "tra\n{}\n'): ["plot {folder} -q"],
            ("../experiment.json", "[]"): ["table {folder}", RUN_AGAIN],
        }.items()
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "damages", "commands"), CASES, ids=[case[0] for case in CASES])
def test_a_fault_is_one_line_and_costs_nothing(
    files: Files,
    fault: str,
    damages: Sequence[Damage],
    commands: Sequence[str],
    capsys: pytest.CaptureFixture[str],
):
    for damage in damages:
        damage(files)
    before, is_published = set(files.run.rglob("*")), files.out.exists()
    for command in commands:
        status = main([word.format(**files._asdict()) for word in command.split()])
        captured = capsys.readouterr()
        assert_seen(fault, status, captured.err)
        assert captured.out == ""
    assert set(files.run.rglob("*")) == before
    assert files.out.exists() == is_published


OTHERS = {
    *("full disk", "output to a full disk", "read-only folder", "file changed while it is read"),
    *("closed pipe", "terminal without Unicode"),
}
"""Faults of the tests below."""


def test_every_fault_is_made():
    assert FAULTS.keys() == {case[0] for case in CASES} | OTHERS


def test_a_file_that_changes_while_it_is_read(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A line is added to one side as soon as the other has been read, by which time it is too late."""

    def read_and_write(path: Path, **options: bool) -> tuple[str, ...]:
        lines = read_lines(path, **options)
        with (files.corpus / f"train{path.suffix}").open("a") as file:
            file.write("Hund\n")
        return lines

    monkeypatch.setattr(data.corpus, "read_lines", read_and_write)
    monkeypatch.setattr(compare.scoring, "read_lines", read_and_write)
    for command in (
        ["run", str(files.config), "--out", str(files.out), "-q", "--set", f"data.root={files.corpus}"],
        ["score", str(files.corpus / "test.de"), "--ref", str(files.corpus / "train.de")],
    ):
        assert_seen("file changed while it is read", main(command), capsys.readouterr().err)
    assert not files.out.exists()


# Disks that are full or may not be written, in a process with a file system of its own

SANDBOX = ["unshare", "--user", "--map-root-user", "--mount"]


def in_sandbox(steps: Sequence[str | list[str]], folder: Path) -> list[tuple[int, str]]:
    """Take steps of ``tests.kits.processes`` where ``disk`` is a tmpfs; returns what each command answers."""
    (folder / "disk").mkdir()
    try:
        can_mount = subprocess.run([*SANDBOX, "mount", "-t", "tmpfs", "tmpfs", folder / "disk"], check=False)
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if can_mount.returncode:
        pytest.skip("needs the right to mount a tmpfs in a namespace of its own")
    done = subprocess.run(
        [*SANDBOX, sys.executable, "-m", "tests.kits.processes"],
        input=json.dumps(["mount -t tmpfs tmpfs disk", *steps]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(status, errors) for status, errors in json.loads(done.stdout)]


@pytest.mark.slow
def test_a_full_disk(tiny_toml: Path, tmp_path: Path):
    """With more space the same command gets further each time, and in the end gives the same weights.

    The sizes are too small for the encoded corpus, for the vocabulary, for a state; and enough.
    """
    short = ["--set", "train.max_updates=16", "--set", "train.valid_every=8"]
    run = ["run", str(tiny_toml), "--only", "luong", "-q", *short, "--out"]
    steps: list[str | list[str]] = []
    for size in ("16k", "64k", "128k", "8192k"):
        steps += [f"mount -o remount,size={size} disk", [*run, "disk/run"]]
        steps += ["! find disk -name '*.tmp' | grep ."]
    *full, enough, free = in_sandbox([*steps, "cp -r disk/run saved", [*run, "free"]], tmp_path)
    for status, err in full:
        assert_seen("full disk", status, err)
        assert ".tmp" not in err
    assert len({err for _, err in full}) == 3  # each time at another file
    assert enough == free == (0, "")
    assert (tmp_path / "saved" / RUN / WEIGHTS).read_bytes() == (
        tmp_path / "free" / RUN / WEIGHTS
    ).read_bytes()


@pytest.mark.slow
def test_a_read_only_folder(tiny_toml: Path, finished: Path, tmp_path: Path):
    commands = [
        ["run", str(tiny_toml), "--out", "disk/new", "-q"],
        ["run", str(tiny_toml), "--out", "disk/begun", "-q"],
        ["plot", "disk/copy", "-q"],
        ["report", "disk/copy", "-q"],
        ["table", "disk/copy"],
    ]
    begun = f"cp -r '{finished}' disk/copy; mkdir disk/begun; cp -r disk/copy/{RUN} disk/begun/"
    answers = in_sandbox([begun, "mount -o remount,ro disk", *commands], tmp_path)
    faults = ["read-only folder", *["read-only or published experiment"] * 3]
    for fault, answer in zip(faults, answers[:-1], strict=True):
        assert_seen(fault, *answer)
    assert answers[-1] == (0, "")


# Terminals and pipes


def attnbench(*arguments: str | Path, stdout: Any, **environment: str) -> tuple[int, str]:
    """Run a command in a process of its own; returns exit status and standard error."""
    command = [sys.executable, "-m", "compare", *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=variables, check=False)
    return done.returncode, done.stderr.decode("ascii")


def test_output_that_nobody_takes(finished: Path):
    """More is written than Python holds back, and less."""
    read, write = os.pipe()
    os.close(read)
    assert_seen("closed pipe", *attnbench("table", "--json", *[finished] * 20, stdout=write))
    os.close(write)
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            assert_seen("output to a full disk", *attnbench("table", finished, stdout=full))


def test_a_terminal_without_unicode(tmp_path: Path):
    folder = tmp_path / "experiment" / "größe😀-seed1"
    folder.mkdir(parents=True)
    result = Result(label="größe😀", preset="lstm", seed=1, status="failed", reason="±1")
    (folder / "result.json").write_text(result.to_json())
    with (tmp_path / "printed").open("wb") as file:
        answer = attnbench("table", folder.parent, stdout=file, PYTHONIOENCODING="ascii")
    assert_seen("terminal without Unicode", *answer)
    printed = (tmp_path / "printed").read_text("ascii")
    assert re.search(r"gr\\xf6\\xdfe\\U0001f600 .*failed: \\xb11", printed), printed


class Echo:
    """A model that translates every sentence to itself."""

    def generate(self, lines: Sequence[str], **_: object) -> Sequence[Sequence[Translation]]:
        return [[Translation(text=line, score=0.0, tokens=[])] for line in lines]


def test_translations_are_utf8_on_any_terminal(monkeypatch: pytest.MonkeyPatch, refusal: Refusal):
    sentences, out = "Das Öl heißt 油.\n😀\n\nx\u2028y\n", io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    typed = io.BufferedReader(io.BytesIO(f"\ufeff{sentences}".encode()))  # with a byte order mark
    monkeypatch.setattr("compare.load_model", lambda *_: Echo())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(typed, encoding="ascii"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert main(["translate", "run"]) == 0
    assert out.buffer.getvalue().decode() == sentences
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"a\n\xff\n"))))
    assert refusal("translate", "run").startswith("standard input, line 2: 0xff is not UTF-8")
