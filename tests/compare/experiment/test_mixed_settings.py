"""Rows of other shared settings: refused in one folder, named by views that join folders."""

import json
from pathlib import Path

import pytest

from compare.cli import main
from tests.kits.cli import Refusal

UNEQUAL = {
    "train.max_updates": "30",
    "train.label_smoothing": "0",
    "train.clip_norm": "5",
    "train.average": "1",
    "train.valid_every": "30",
    "decode.beam_size": "5",
    "decode.max_ratio": "1.5",
}


@pytest.fixture
def third_model(tiny_toml: Path, tmp_path: Path) -> Path:
    """The tiny experiment with a further model only."""
    text = tiny_toml.read_text()
    path = tmp_path / "third.toml"
    path.write_text(text.split("[[models]]")[0] + '[[models]]\npreset = "lstm"\nhidden_size = 8\n')
    return path


@pytest.mark.parametrize(("name", "value"), UNEQUAL.items())
def test_a_row_of_other_settings_is_refused(
    name: str, value: str, third_model: Path, copy: Path, refusal: Refusal
):
    before = sorted(copy.rglob("*"))
    for dry_run in (["--dry-run"], []):
        message = refusal("run", third_model, "--out", copy, "--set", f"{name}={value}", *dry_run)
        assert f"{copy} holds runs with other settings (luong-seed1 has {name}: " in message
        assert f"here {value}" in message
    assert sorted(copy.rglob("*")) == before


@pytest.mark.usefixtures("without_plots")
def test_a_row_of_the_same_settings_joins(third_model: Path, copy: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(third_model), "--out", str(copy), "--set", "bench.repeats=2"]) == 0
    assert "Warning: these rows" not in capsys.readouterr().out
    rows = [json.loads(line) for line in (copy / "results.jsonl").read_text().splitlines()]
    assert len({row["settings_hash"] for row in rows}) == 1
    assert len(rows) == 3


def test_settings_that_another_process_recorded_are_refused(
    third_model: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Two processes that begin at once see no config.toml of each other, but the one experiment.json."""
    registry = json.loads((copy / "experiment.json").read_text())
    other = {**registry, "runs": ["a-seed1"], "settings_hash": "5" * 64}
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "experiment.json").write_text(json.dumps(other))
    assert main(["run", str(third_model), "--out", str(begun)]) == 2
    assert "(settings_hash 555555555555, here " in capsys.readouterr().err.splitlines()[-1]
    assert not (begun / "lstm-seed1").exists()


def test_tables_that_join_folders_name_the_settings(
    run_tiny, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = run_tiny(tmp_path / "other", "train.max_updates=20", "decode.beam_size=1", "train.clip_norm=3")
    assert main(["table", str(finished), str(other)]) == 0
    warning = next(line for line in capsys.readouterr().out.splitlines() if "do not share" in line)
    assert "updates, clip" in warning.replace("\\", "")
    assert "beam" in warning
