"""Seeds as an axis: every model from each of them, on the batches of each."""

import json
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.run_all import run_experiment
from compare.system.progress import Reporter
from tests.kits.cli import Refusal

SHORT = ("train.max_updates=4", "train.valid_every=4")


@pytest.fixture(scope="module")
def seeded(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds") / "run"
    run_experiment(load_experiment(tiny_toml, SHORT), folder, Reporter(quiet=True), seeds=(1, 2))
    return folder


def test_each_model_is_trained_from_each_seed(seeded: Path):
    names = ["luong-seed1", "transformer-seed1", "luong-seed2", "transformer-seed2"]
    assert json.loads((seeded / "experiment.json").read_text())["runs"] == names
    rows = [json.loads((seeded / name / "result.json").read_text()) for name in names]
    assert [row["seed"] for row in rows] == [1, 1, 2, 2]
    assert rows[0]["batch_hash"] == rows[1]["batch_hash"] != rows[2]["batch_hash"] == rows[3]["batch_hash"]
    assert len({row["data_hash"] for row in rows}) == 1


def test_a_seed_beside_others_is_that_seed_alone(seeded: Path, tiny_toml: Path, tmp_path: Path):
    experiment = load_experiment(tiny_toml, (*SHORT, "train.seed=2"))
    run_experiment(experiment, tmp_path / "alone", Reporter(quiet=True))
    for name in ("luong-seed2", "transformer-seed2"):
        for file in ("checkpoints/final.safetensors", "config.toml"):
            assert (seeded / name / file).read_bytes() == (tmp_path / "alone" / name / file).read_bytes()


def test_more_seeds_are_added_to_what_is_done(
    seeded: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str]
):
    before = {path: path.stat().st_mtime_ns for path in seeded.glob("*/result.json")}
    settings = [part for setting in SHORT for part in ("--set", setting)]
    assert main(["run", str(tiny_toml), "--out", str(seeded), "--seeds", "2,3", *settings]) == 0
    assert "luong-seed3" in capsys.readouterr().err
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert len(list(seeded.glob("*/result.json"))) == 6


@pytest.mark.parametrize("text", ["1,1", "1,", "a", "-1", "1.5"])
def test_what_are_no_seeds(text: str, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    said = refusal("run", tiny_toml, "--out", tmp_path / "run", f"--seeds={text}")
    assert said == f"--seeds {text}: must be different whole numbers from 0 on, such as 1,2,3"
    assert not (tmp_path / "run").exists()
