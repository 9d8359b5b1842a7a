"""Fine-tuning: training that starts from the weights and vocabularies of another run."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from compare.check.recompute import check_experiment
from compare.config.parse import load_experiment
from compare.config.run import shared_settings
from compare.experiment.dry_run import dry_run
from compare.experiment.publish import published_run
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder
from compare.training.serialization import load_weights
from data.files import hash_file
from tests.kits.cli import ROWS, Refusal

SHORT = ["train.max_updates=2", "train.valid_every=2", "train.average=1"]


@pytest.fixture(scope="module")
def tuned(finished: Path, tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the models two updates further, at next to no learning rate, on the first half of the corpus."""
    root = tmp_path_factory.mktemp("tuned")
    (root / "corpus").mkdir()
    for path in (tiny_toml.parent / "corpus").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        (root / "corpus" / path.name).write_text("".join(lines[: max(8, len(lines) // 2)]))
    settings = [*SHORT, f"train.init_from={finished}", f"data.root={root / 'corpus'}"]
    settings += ["models.*.learning_rate=1e-12", "models.*.warmup_updates=0"]
    run_experiment(load_experiment(tiny_toml, settings), root / "run", only=["luong"])
    return root / "run"


def test_training_starts_from_the_weights_of_label_and_seed(tuned: Path, finished: Path):
    name = ROWS[0]
    source = RunFolder.read(finished / name)
    before, after = load_weights(source.weights), load_weights(RunFolder.read(tuned / name).weights)
    assert before.keys() == after.keys()
    for key in before:
        torch.testing.assert_close(after[key], before[key], rtol=0, atol=1e-6)
    train = RunFolder.read(tuned / name).run.train
    assert (train.init_from, train.init_hash) == (str(finished / name), hash_file(source.weights))
    result = json.loads((tuned / name / "result.json").read_text())
    assert result["init_hash"] == train.init_hash
    vocabulary = (tuned / name / "vocabulary.json").read_text()
    assert vocabulary == (finished / name / "vocabulary.json").read_text()


def test_check_knows_where_it_started(tuned: Path, finished: Path):
    found = check_experiment(tuned)
    assert not found.differences
    assert any("train.init_hash" in finding.name for finding in found.findings)
    config = tuned / ROWS[0] / "config.toml"
    text = config.read_text()
    changed = text.replace(hash_file(RunFolder.read(finished / ROWS[0]).weights), "0" * 64)
    assert changed != text
    config.write_text(changed)
    try:
        names = {finding.name for finding in check_experiment(tuned).differences}
    finally:
        config.write_text(text)
    assert {"train.init_hash", "init_hash", "config.toml"} <= names


def test_only_rows_that_start_so_stand_in_one_table(tuned: Path, finished: Path):
    here, there = (RunFolder.read(folder / ROWS[0]).run for folder in (tuned, finished))
    assert "train.init_from" in shared_settings(here)
    assert not [name for name in shared_settings(there) if name.startswith("train.init")]
    other = dataclasses.replace(here, train=dataclasses.replace(here.train, init_hash="1" * 64))
    assert shared_settings(other) == shared_settings(here)


def test_a_published_config_has_no_path(tuned: Path, finished: Path):
    text = published_run(RunFolder.read(tuned / ROWS[0])).to_toml()
    assert f'init_from = "{finished.name}/{ROWS[0]}"' in text
    assert str(finished.parent) not in text


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (
            ["vocabulary.kind=characters"],
            "has vocabulary.kind = words, here characters: its weights need its",
        ),
        (["models.luong.hidden_size=32"], "but the model's is"),
        (["models.luong.cell=gru"], "but the model's is"),
        (["train.init_from=absent"], "is no run: give the folder of a finished run"),
        (["train.seed=2"], "luong-seed2 is no run"),
        (["train.init_hash=abc"], "are not the weights of train.init_hash"),
        (["train.init_from="], "init_from must name the folder of a run"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: list[str], part: str, finished: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    words = [word for each in (f"train.init_from={finished}", *settings) for word in ("--set", each)]
    for more in ([], ["--dry-run"]):
        message = refusal("run", tiny_toml, "--only", "luong", "--out", tmp_path / "run", "-q", *words, *more)
        assert part in message
    assert not (tmp_path / "run").exists()


def test_a_run_folder_serves_every_seed(finished: Path, tiny_toml: Path):
    source = finished / ROWS[1]
    experiment = load_experiment(tiny_toml, [f"train.init_from={source}"])
    runs = dry_run(experiment, "absent", seeds=[3, 4], only=["transformer"])
    assert {run.train.init_from for run in runs} == {str(source)}
