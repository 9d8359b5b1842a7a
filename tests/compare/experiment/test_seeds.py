"""Seeds as an axis: every model from each of them, on the batches of each."""

import json
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.run import run_experiment
from compare.results.records import read_speed
from compare.results.store import read_result, read_results
from compare.system.log import Reporter
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


@pytest.mark.usefixtures("without_plots")
def test_more_seeds_are_added_to_what_is_done(
    seeded: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str]
):
    before = {path: path.read_bytes() for path in seeded.glob("*/*/final.safetensors")}
    rows = {path: read_result(path.parent) for path in seeded.glob("*/result.json")}
    settings = [part for setting in SHORT for part in ("--set", setting)]
    assert main(["run", str(tiny_toml), "--out", str(seeded), "--seeds", "2,3", *settings]) == 0
    assert "luong-seed3" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(list(seeded.glob("*/result.json"))) == 6
    for path, row in rows.items():  # all models were timed again, in turn with the added ones
        again = read_result(path.parent)
        assert again.timed_together != row.timed_together
        assert (again.bleu, again.updates, again.train_s) == (row.bleu, row.updates, row.train_s)


def test_the_seeds_of_a_model_share_the_speeds_of_its_lowest(seeded: Path):
    for label in ("luong", "transformer"):
        one, other = (read_speed(seeded / f"{label}-seed{seed}" / "speed.json") for seed in (1, 2))
        assert one.timings == other.timings
        assert one.timings is not None
        assert one.timings.session is not None
        assert one.timings.session.timed_run == f"{label}-seed1"
        assert one.decode_s != other.decode_s
    assert len({result.timed_together for result in read_results(seeded)} - {None}) == 1
    assert not check_experiment(seeded).differences


@pytest.mark.parametrize("text", ["1,1", "1,", "a", "-1", "1.5"])
def test_what_are_no_seeds(text: str, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    said = refusal("run", tiny_toml, "--out", tmp_path / "run", f"--seeds={text}")
    assert said == f"--seeds {text}: must be different whole numbers from 0 on, such as 1,2,3"
    assert not (tmp_path / "run").exists()
