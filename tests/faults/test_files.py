"""Files that are not what they should be: changed, foreign, cut short, hostile, huge, or folders."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compare.scoring.score
import data.corpus
from compare.cli import main
from data.corpus import Pairs
from data.encode import encode_split
from data.files import ensure_unchanged
from data.vocabulary import build_pair
from tests.kits.cli import ROWS, files
from tests.kits.faults import PICKLERS, ROOT, Bomb, as_documented, environment

RUN = ROWS[0]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command and compares its error with docs/faults.md."""

    def refuse(fault: str, *arguments: str | Path) -> str:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        as_documented(fault, status, captured.err)
        assert captured.out == ""
        return captured.err

    return refuse


def resume(tiny_toml: Path, folder: Path) -> list[str | Path]:
    """The command that brings RUN to its end again."""
    (folder / RUN / "result.json").unlink(missing_ok=True)
    return ["run", tiny_toml, "--out", folder, "-q"]


# --- changed, foreign, cut short


def test_a_file_that_changes_while_it_is_read(
    tiny_toml: Path, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    """A line is added to one side as soon as the other has been read, by which time it is too late."""
    corpus = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    read = data.corpus.read_lines

    def read_and_write(path: Path, **options: bool) -> tuple[str, ...]:
        lines = read(path, **options)
        with (corpus / f"train{path.suffix}").open("a") as file:
            file.write("Hund\n")
        return lines

    monkeypatch.setattr(data.corpus, "read_lines", read_and_write)
    monkeypatch.setattr(compare.scoring.score, "read_lines", read_and_write)
    run = ["run", tiny_toml, "--out", tmp_path / "out", "--set", f"data.root={corpus.as_posix()}", "-q"]
    assert "train.en was changed" in refused("file changed while it is read", *run)
    assert not (tmp_path / "out").exists()
    score = ["score", corpus / "test.de", "--ref", corpus / "train.de"]
    assert "train.de was changed" in refused("file changed while it is read", *score)


def test_a_file_that_is_replaced_or_left_alone(tmp_path: Path):
    path, other = tmp_path / "text", tmp_path / "other"
    path.write_text("a")
    with ensure_unchanged(path, tmp_path / "absent"):
        path.read_bytes()
    other.write_text("b")
    with pytest.raises(ValueError, match="text was changed"), ensure_unchanged(path):
        other.replace(path)


def test_the_vocabulary_of_another_run(tiny_toml: Path, copy: Path, refused: Callable[..., str]):
    """One of the same size, under which every weight would fit and every word be another."""
    path = copy / RUN / "vocabulary.json"
    own = path.read_text()
    path.write_text(own.replace('"dog"', '"?"').replace('"cat"', '"dog"').replace('"?"', '"cat"'))
    assert len(path.read_text()) == len(own)
    refused("vocabulary of another run", "translate", copy / RUN)
    refused("vocabulary of another run, resumed", *resume(tiny_toml, copy))
    assert not (copy / RUN / "result.json").exists()
    path.write_text(own)
    assert main(list(map(str, resume(tiny_toml, copy)))) == 0


def test_weights_cut_short(copy: Path, refused: Callable[..., str]):
    path = copy / RUN / "checkpoints" / "final.safetensors"
    content = path.read_bytes()
    for size in (0, 7, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        refused("truncated weights", "translate", copy / RUN)
        refused("truncated weights", "plot", copy, "-q")


# --- hostile


@pytest.mark.parametrize("save", PICKLERS)
def test_a_hostile_pickle(
    tiny_toml: Path, copy: Path, tmp_path: Path, refused: Callable[..., str], save: Callable[..., Any]
):
    bomb, folder = Bomb(tmp_path / "boom"), copy / RUN / "checkpoints"
    save(bomb, folder / "final.safetensors")
    refused("hostile pickle as weights", "translate", copy / RUN)
    save({"progress": bomb}, folder / "trainer.pt")
    refused("hostile pickle as state", *resume(tiny_toml, copy))
    assert not bomb.target.exists()


def test_a_hostile_array_is_made_anew(tmp_path: Path):
    """NumPy's arrays may hold Python's objects; here the manifest says that one does."""
    pairs = Pairs(("a b",) * 3, ("c d",) * 3)
    vocabularies = build_pair(pairs, kind="words", size=20, joint=True)
    encode_split(pairs, vocabularies, folder=tmp_path, max_tokens=None)
    (place,) = tmp_path.iterdir()
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["arrays"]["src_ids"]["type"] = "|O"
    (place / "manifest.json").write_text(json.dumps(manifest))
    assert encode_split(pairs, vocabularies, folder=tmp_path, max_tokens=None).src.flat.dtype == np.uint16


# --- huge


MEASURED = """
import resource, sys
from compare.cli import main
import compare.scoring.score, compare.report.score_tables
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
status = main(sys.argv[1:])
print(peak() - before)
sys.exit(status)
"""


def test_a_line_of_a_gigabyte(tmp_path: Path):
    """A sparse file: it takes no space on the disk, but would in memory."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    command = [sys.executable, "-c", MEASURED, "score", str(path), "--ref", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False)
    as_documented("line of 1 GB", done.returncode, done.stderr)
    assert int(done.stdout) < 50_000  # KiB


def test_a_config_of_ten_megabytes(tiny_toml: Path, tmp_path: Path, refused: Callable[..., str]):
    path = tmp_path / "huge.toml"
    path.write_text(tiny_toml.read_text() + "# more\n" * 1_500_000)
    assert path.stat().st_size > 10_000_000
    for command in ("run", "bench"):
        refused("config of 10 MB", command, path)


def test_a_config_nested_too_deeply(tmp_path: Path, refused: Callable[..., str]):
    path = tmp_path / "deep.toml"
    path.write_text(f"[data]\nroot = {'[' * 100_000}")
    refused("config nested too deeply", "run", path)


# --- folders


def test_a_folder_where_a_text_should_be(tiny_toml: Path, tmp_path: Path, refused: Callable[..., str]):
    corpus = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    fault = "folder where a text should be"
    refused(fault, "score", corpus / "test.de", "--ref", corpus)
    (corpus / "train.de").unlink()
    (corpus / "train.de").mkdir()
    out = tmp_path / "out"
    refused(fault, "run", tiny_toml, "--out", out, "--set", f"data.root={corpus.as_posix()}")
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (f"{RUN}/result.json", ["table", "run", "report", "check"]),
        (f"{RUN}/config.toml", ["run"]),
        (f"{RUN}/vocabulary.json", ["translate"]),
        (f"{RUN}/metrics.jsonl", ["plot"]),
        ("experiment.json", ["table", "run", "plot"]),
    ],
)
def test_a_folder_where_a_file_of_a_run_should_be(
    tiny_toml: Path, copy: Path, refused: Callable[..., str], name: str, commands: list[str]
):
    (copy / name).unlink()
    (copy / name).mkdir()
    known = {"run": ["run", tiny_toml, "--out", copy], "translate": ["translate", copy / RUN]}
    before = files(copy)
    for command in commands:
        quiet = [] if command in ("table", "translate") else ["-q"]
        arguments = [*known.get(command, [command, copy]), *quiet]
        assert name in refused("folder where a file of a run should be", *arguments)
    assert files(copy).keys() == before.keys()
