"""attnbench run --only: some models of an experiment, then the others."""

import json
from pathlib import Path

import pytest

from compare.cli import main
from tests.kits.cli import ROWS, Refusal

SHORT = ["--set", "train.max_updates=6", "--set", "train.valid_every=6", "-q"]


def test_models_are_added_to_a_folder_one_call_after_the_other(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A model that diverges makes only those calls fail that ask for it."""
    monkeypatch.setattr("compare.report.views.write_views", lambda folder: None)  # plots take their time
    out = tmp_path / "run"
    command = ["run", str(tiny_toml), "--out", str(out), *SHORT, "--set", "models.luong.learning_rate=1e38"]
    assert main([*command, "--only", "luong", "--json"]) == 1
    assert [row["status"] for row in json.loads(capsys.readouterr().out)] == ["failed"]
    assert not (out / ROWS[1]).exists()
    assert main([*command, "--only", "transf*", "--json"]) == 0
    assert [row["label"] for row in json.loads(capsys.readouterr().out)] == ["transformer"]
    assert json.loads((out / "experiment.json").read_text())["runs"] == list(ROWS)
    assert main([*command, "--json"]) == 1  # nothing is trained again
    assert [row["status"] for row in json.loads(capsys.readouterr().out)] == ["failed", "done"]


def test_a_label_that_no_model_has(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    message = refusal("run", tiny_toml, "--out", tmp_path / "run", "--only", "luon", "-q")
    assert message == "--only: no model is labelled 'luon'; did you mean 'luong'?"
    assert not (tmp_path / "run").exists()
