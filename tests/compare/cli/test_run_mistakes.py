"""Mistakes in config, corpus or folder: `attnbench run` prints one line, exits with 2, writes nothing."""

import gzip
from pathlib import Path

import pytest
import torch

from tests.kits.cli import ROWS, Refusal, corpus_with, files

# --- run: mistakes in the config and on the command line


def edited(tiny_toml: Path, folder: Path, old: str, new: str) -> Path:
    text = tiny_toml.read_text()
    assert old in text
    path = folder / "edited.toml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("luong-general", "luong-generl", ["models.luong", "did you mean 'luong-general'?"]),
        ("num_heads = 2", "num_heads = 3", ["d_model (16) must be a multiple of num_heads (3)"]),
        ("d_model = 16", "d_model = 0", ["d_model must be at least 1"]),
        ("hidden_size = 16", "hidden_size = 15", ["hidden_size (15) must be even"]),
        ("valid_every", "valid_evry", ["'train.valid_evry'", "'train.valid_every'"]),
        ("[bench]", "[bnech]", ["'bnech'", "'bench'"]),
        ("[bench]", "[bench", ["not TOML"]),
    ],
)
def test_a_config_that_cannot_be(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, old: str, new: str, parts: list[str]
):
    path = edited(tiny_toml, tmp_path, old, new)
    for command in (["run", path, "--out", tmp_path / "a" / "b"], ["bench", path]):
        message = refusal(*command)
        assert message.startswith(str(path))
        assert all(part in message for part in parts)
    assert list(tmp_path.iterdir()) == [path]


def test_a_config_that_is_no_file(tmp_path: Path, refusal: Refusal):
    for command in ("run", "bench"):
        assert refusal(command, tmp_path / "no.toml") == f"{tmp_path / 'no.toml'}: No such file or directory"
        assert refusal(command, tmp_path) == f"{tmp_path}: Is a directory"


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("train.max_updates", "must look like section.key=value"),
        ("train.max_update=3", "did you mean 'train.max_updates'?"),
        ("trian.seed=3", "did you mean 'train'?"),
        ("train.seed=x", "must be int"),
        ("train.batch_tokens=0", "at least 1"),
        ("train.batch_tokens=5", "batch_tokens (5) must hold the longest target (8 tokens with EOS)"),
        ("data.max_tokens=1", "max_tokens (1) leaves none of 400 pairs"),
        ("data.tgt=fr", "has no counterpart train.fr"),
        ("vocabulary.kind=unigram vocabulary.size=100", "bytes and characters alone need "),
        ("data.root=/no/such/folder", "/no/such/folder: no such folder"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_setting_that_cannot_be_leaves_nothing(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, setting: str, part: str, dry_run: bool
):
    """Found in the config, in the corpus, in the vocabulary or once all is encoded: no folder is left."""
    command = ["run", tiny_toml, "--out", tmp_path / "a" / "b", "-q"]
    command += [word for each in setting.split() for word in ("--set", each)]
    assert part in refusal(*command, *(["--dry-run"] if dry_run else []))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has what the test asks for")
def test_a_gpu_that_is_not_there(tiny_toml: Path, finished: Path, tmp_path: Path, refusal: Refusal):
    command = ["run", tiny_toml, "--out", tmp_path / "run", "--set", "train.device=cuda"]
    assert "torch finds no GPU" in refusal(*command)
    assert not list(tmp_path.iterdir())
    assert "'cuda' cannot be used" in refusal("translate", finished / ROWS[0], "--device", "cuda")


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("train.de", b"nur eine\n", ["train.en has 400 lines but", "train.de has 1"]),
        ("valid.de", None, ["valid.en has no counterpart valid.de"]),
        ("test.de", b"", ["test.de is empty"]),
        ("test.de", b"a\n\nb\n", ["test.de, line 2: the line is empty"]),
        ("valid.en", b"a\nb \xff\n", ["valid.en, line 2, byte 3: 0xff is not UTF-8"]),
        ("test.de.gz", gzip.compress(b"a\n", mtime=0), ["two versions of one text"]),
    ],
)
@pytest.mark.parametrize("existing", [False, True])
def test_a_corpus_that_cannot_be_used_leaves_nothing(
    tiny_toml: Path,
    tmp_path: Path,
    refusal: Refusal,
    name: str,
    content: bytes | None,
    parts: list[str],
    existing: bool,
):
    root = corpus_with(tiny_toml, tmp_path, name, content)
    out = tmp_path / "out"
    if existing:
        (out / "encoded").mkdir(parents=True)
    before = files(tmp_path)
    message = refusal("run", tiny_toml, "--out", out, "-q", "--set", f"data.root={root.as_posix()}")
    assert all(part in message for part in parts)
    assert files(tmp_path) == before


def test_a_place_that_is_no_folder(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    (tmp_path / "file").write_text("mine")
    assert "is not a folder" in refusal("run", tiny_toml, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


# --- run: mistakes in a folder that is there


def test_a_folder_of_another_experiment(tiny_toml: Path, copy: Path, refusal: Refusal):
    before = files(copy)
    message = refusal("run", tiny_toml, "--out", copy, "-q", "--set", "train.clip_norm=2")
    assert "holds another experiment (clip_norm = 1.0 there, clip_norm = 2.0 here)" in message
    assert files(copy) == before


def test_a_folder_begun_with_other_data(tiny_toml: Path, copy: Path, tmp_path: Path, refusal: Refusal):
    """A new seed has runs of its own, but they would be in one table with the old ones."""
    root = corpus_with(tiny_toml, tmp_path, "valid.de", b"Hund\n" * 8)
    before = files(copy)
    settings = ["--set", f"data.root={root.as_posix()}", "--set", "train.seed=2"]
    for more in ([], ["--dry-run"]):
        message = refusal("run", tiny_toml, "--out", copy, "-q", *settings, *more)
        assert "was begun with other data (data_hash " in message
        assert files(copy).keys() == before.keys()


@pytest.mark.parametrize(
    ("name", "content", "commands", "part"),
    [
        ("config.toml", b"\xff", ["run"], "config.toml: not TOML"),
        ("config.toml", b"[x", ["run"], "config.toml: not TOML"),
        ("config.toml", b"[x", ["plot", "translate"], "config.toml: not TOML"),
        ("result.json", b"{", ["run", "table", "plot"], "result.json: not a result record"),
        ("result.json", b"", ["run", "table", "plot"], "result.json: not a result record"),
        ("result.json", b"[]", ["run", "table", "plot"], "result.json: not a result record"),
        ("../experiment.json", b"[]", ["run", "table", "plot"], "experiment.json: expected one JSON object"),
        ("../experiment.json", b"\xff", ["run", "table"], "experiment.json: expected one JSON object"),
        ("vocabulary.json", b"{}", ["plot", "translate"], "vocabulary.json: holds neither"),
        ("checkpoints/final.safetensors", b"x", ["plot", "translate"], "not a readable safetensors file"),
        ("../test.src", b"\xff\n", ["plot"], "test.src, line 1, byte 1: 0xff is not UTF-8"),
    ],
)
def test_a_damaged_file_is_named(
    tiny_toml: Path, copy: Path, refusal: Refusal, name: str, content: bytes, commands: list[str], part: str
):
    (copy / ROWS[0] / name).write_bytes(content)
    known = {
        "run": ["run", tiny_toml, "--out", copy, "-q"],
        "table": ["table", copy],
        "plot": ["plot", copy, "-q"],
        "translate": ["translate", copy / ROWS[0]],
    }
    before = files(copy / ROWS[1])
    for command in commands:
        assert part in refusal(*known[command])
    assert files(copy / ROWS[1]) == before


def test_a_damaged_state_is_named(tiny_toml: Path, copy: Path, refusal: Refusal):
    (copy / ROWS[0] / "result.json").unlink()
    (copy / ROWS[0] / "checkpoints" / "trainer.pt").write_bytes(b"x")
    message = refusal("run", tiny_toml, "--out", copy, "-q")
    assert "trainer.pt: damaged trainer state" in message
    assert not (copy / ROWS[0] / "result.json").exists()


def test_the_middle_of_an_endless_name_is_left_out(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    message = refusal("run", tiny_toml, "--out", tmp_path / "o", "--set", f"data.root=/{'a.' * 5_000}")
    assert len(message) < 1_100
    assert message.startswith("/a.a.")
    assert message.endswith(": File name too long")
