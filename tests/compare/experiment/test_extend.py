"""``attnbench extend``: a folder trained further is that of the longer training, also after a kill."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.experiment import extend
from compare.experiment.extend import extend_experiment, plan_extension
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results, save_result
from compare.training.metrics_log import read_metrics
from data.files import hash_file, write_atomically
from tests.kits.cli import ROWS, Refusal, files
from tests.kits.paths import ROOT

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


def assert_equal(extended: Path, long: Path) -> None:
    for name in ROWS:
        for file in ("config.toml", "test.hyp", "selection.json", "checkpoints/final.safetensors"):
            assert hash_file(extended / name / file) == hash_file(long / name / file), file
        assert log_of(extended / name) == log_of(long / name)
    rows, expected = read_results(extended), read_results(long)
    for row, other in zip(rows, expected, strict=True):
        assert (row.status, row.bleu, row.updates, row.settings_hash) == (
            "done",
            other.bleu,
            14,
            other.settings_hash,
        )
        assert (row.extended_from, other.extended_from) == (8, None)
    assert not check_experiment(extended).differences


def test_it_equals_training_from_the_start_also_after_a_kill(
    folder: Path,
    long: Path,
    tiny_toml: Path,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
):
    """Stopped when one of two runs has its new settings: nobody mixes them, the same command goes on."""
    killed = folder / ROWS[1] / "config.toml"

    def write(path: Path, content: str | bytes) -> None:
        if path == killed:
            raise KeyboardInterrupt
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(extend, "write_atomically", write)
        with pytest.raises(KeyboardInterrupt):
            extend_experiment(folder, 14)
    assert [RunFolder.read(folder / name).run.train.max_updates for name in ROWS] == [14, 8]
    settings = [word for each in SETTINGS for word in ("--set", each)]
    for updates in (8, 14):
        command = [
            "run",
            tiny_toml,
            "--out",
            folder,
            "-q",
            *settings,
            "--set",
            f"train.max_updates={updates}",
        ]
        assert "run" in refusal(*command)
    assert "an extension to 14 updates has begun" in refusal("extend", folder, "--updates", "20", "-q")
    with monkeypatch.context() as patch:  # stopped again, before the first update
        patch.setattr(extend.InTurn, "run_each", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            extend_experiment(folder, 14)
    assert [row.status for row in read_results(folder)] == ["unfinished"] * 2
    extend_experiment(folder, 14)
    assert_equal(folder, long)
    before = files(folder / ROWS[0])
    extend_experiment(folder, 14)  # nothing is left to do
    assert files(folder / ROWS[0]) == before


def test_the_command_lists_and_refuses(folder: Path, refusal: Refusal, capsys: pytest.CaptureFixture[str]):
    assert main(["extend", str(folder), "--updates", "14", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(ROWS)
    before = files(folder)
    assert "--updates 7 must be more" in refusal("extend", folder, "--updates", "7")
    (folder / "longer").mkdir()
    assert "longer is of the runs as they are now" in refusal("extend", folder, "--updates", "14")
    (folder / "longer").rmdir()
    assert files(folder) == before
    (folder / ROWS[0] / "result.json").unlink()
    assert "has not ended" in refusal("extend", folder, "--updates", "14")


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("valid_every = 4", "valid_every = 3", "at update 8, is no multiple of train.valid_every = 3"),
        (
            'schedule = "inverse-sqrt"',
            'schedule = "linear"',
            "schedule = 'linear' has lowered the learning rate",
        ),
        (
            'schedule = "inverse-sqrt"',
            'schedule = "cosine"',
            "schedule = 'cosine' has lowered the learning rate",
        ),
        ('match = "none"', 'match = "time"', "budget.match = 'time' decides the updates"),
    ],
)
def test_what_would_differ_from_longer_training_is_refused(folder: Path, old: str, new: str, part: str):
    for name in ROWS:
        config = folder / name / "config.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))
    with pytest.raises(ValueError, match=r"\S") as caught:
        plan_extension(folder, 14)
    assert part in str(caught.value)


def test_runs_that_patience_ended_are_not_called_extended(tmp_path: Path):
    """It ends them again at once; the published run ended at update 13,284 of 24,600."""
    published, folder = ROOT / "results" / "multi30k-de-en", tmp_path / "runs"
    registry = json.loads((published / "experiment.json").read_text())
    del registry["published"]
    for stopped_by, extended in (("patience", {}), ("updates", {"lstm-seed1": 13284})):
        shutil.copytree(published / "lstm-seed1", folder / "lstm-seed1", dirs_exist_ok=True)
        (folder / "experiment.json").write_text(json.dumps(registry | {"runs": ["lstm-seed1"]}))
        result = replace(read_result(folder / "lstm-seed1"), stopped_by=stopped_by)
        save_result(folder / "lstm-seed1", result)
        (folder / "lstm-seed1" / "checkpoints").mkdir(exist_ok=True)
        (folder / "lstm-seed1" / "checkpoints" / "trainer.pt").touch()
        extend._change_settings(folder, extend.plan_extension(folder, 29520), 29520)
        assert json.loads((folder / "experiment.json").read_text())["extended"] == extended


def test_a_planned_run_that_was_not_begun(folder: Path):
    shutil.rmtree(folder / ROWS[1])
    with pytest.raises(ValueError, match=f"{ROWS[1]} has not ended: run the experiment to its end first"):
        plan_extension(folder, 14)
