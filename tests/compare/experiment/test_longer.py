"""A larger ``train.max_updates`` continues the runs of a folder, to what training from the start gives."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.experiment import folder as folder_module
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.training.metrics_log import read_metrics
from data.files import hash_file, write_atomically
from tests.kits.cli import ROWS, Refusal, files

SETTINGS = (
    *("models.*.schedule=inverse-sqrt", "train.valid_every=4"),
    *("train.average=2", "train.average_every=3", "train.ema=0.9"),
)
TIMES = ("seconds", "data_s", "train_s", "tokens_per_s", "validation_s", "checkpoint_s", "joules")


@pytest.fixture(scope="module")
def short(run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("short") / "run", *SETTINGS, "train.max_updates=8")


@pytest.fixture(scope="module")
def long(run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("long") / "run", *SETTINGS, "train.max_updates=14")


@pytest.fixture
def folder(short: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(short, tmp_path / "run"))


def log_of(run: Path) -> list[dict[str, object]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def test_it_equals_training_from_the_start_also_after_a_kill(
    folder: Path, long: Path, run_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    """Killed when one of two runs has its new settings: nobody mixes them, and the same call goes on."""
    killed = folder / ROWS[1] / "config.toml"

    def write(path: Path, content: str | bytes) -> None:
        if path == killed:
            raise KeyboardInterrupt
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "write_atomically", write)
        with pytest.raises(KeyboardInterrupt):
            run_tiny(folder, *SETTINGS, "train.max_updates=14")
    assert [RunFolder.read(folder / name).run.train.max_updates for name in ROWS] == [14, 8]
    with pytest.raises(ValueError, match="holds another experiment"):
        run_tiny(folder, *SETTINGS, "train.max_updates=8")
    run_tiny(folder, *SETTINGS, "train.max_updates=14")
    for name in ROWS:
        for file in ("config.toml", "test.hyp", "selection.json", "checkpoints/final.safetensors"):
            assert hash_file(folder / name / file) == hash_file(long / name / file), file
        assert log_of(folder / name) == log_of(long / name)
    for row, other in zip(read_results(folder), read_results(long), strict=True):
        assert (row.status, row.bleu, row.updates) == ("done", other.bleu, 14)
        assert row.settings_hash == other.settings_hash
    assert not check_experiment(folder).differences
    before = files(folder / ROWS[0])
    run_tiny(folder, *SETTINGS, "train.max_updates=14")  # nothing is left to do
    assert files(folder / ROWS[0]) == before


def test_what_cannot_be_continued_is_refused(
    folder: Path, run_tiny: Callable[..., Path], tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    settings = [word for each in SETTINGS for word in ("--set", each)]
    command = ["run", str(tiny_toml), "--out", str(folder), "-q", *settings, "--set", "train.max_updates=14"]
    before = files(folder)
    assert "has train.max_updates: 8, here 14" in refusal(*command, "--only", "luong")
    assert files(folder) == before
    (folder / ROWS[1] / "checkpoints" / "trainer.pt").unlink()
    assert refusal(*command).endswith(
        "cannot be continued to 14: it has no checkpoints/trainer.pt: choose another folder with --out"
    )
    other = run_tiny(tmp_path / "other", "train.max_updates=4", "train.valid_every=3")
    again = ["run", str(tiny_toml), "--out", str(other), "-q", "--set", "train.valid_every=3"]
    assert "schedule = 'linear' has lowered the learning rate in view of its end" in refusal(
        *again, "--set", "train.max_updates=8"
    )
    flat = run_tiny(tmp_path / "flat", SETTINGS[0], "train.max_updates=4", "train.valid_every=3")
    again = [*again[:3], str(flat), *again[4:], "--set", SETTINGS[0], "--set", "train.max_updates=8"]
    assert "its last validation is no multiple of train.valid_every = 3" in refusal(*again)
    shutil.rmtree(flat / ROWS[0])
    shutil.rmtree(flat / ROWS[1])
    assert main(again) == 2  # experiment.json is of four updates
