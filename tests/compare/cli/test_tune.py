"""The command line of tune: what it prints, with --json, --quiet and --dry-run, and what it refuses."""

import json
from pathlib import Path

import pytest

from compare.cli import main
from compare.experiment.tune import plan
from compare.experiment.tune.candidates import find_winners
from compare.experiment.tune.trial_log import read_trials
from tests.kits.cli import Refusal

pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")

EFFORT = ["--trials", "2", "--updates", "2", "--space", "dropout=0,0.25"]


def test_the_table_of_the_winners(tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = ["tune", str(tiny_toml), "--out", str(tmp_path / "out"), *EFFORT]
    assert main(command) == 0
    printed = capsys.readouterr()
    winners = find_winners(read_trials(tmp_path / "out"))
    header, _, *rows = printed.out.splitlines()
    assert [cell.strip() for cell in header.split("|")][1:5] == [
        "label",
        "trials",
        "failed",
        "updates per trial",
    ]
    assert [row.split()[1] for row in rows] == ["luong", "transformer"]
    assert f"written to {tmp_path / 'out' / 'best.toml'}" in printed.err
    assert "[1/4] luong trial 1: learning_rate" in printed.err
    assert main([*command, "--json", "-q"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for row in json.loads(printed.out):
        winner = winners[row["label"]]
        assert (row["trials"], row["failed"], row["updates_per_trial"]) == (2, 0, 2)
        assert (row["best_trial"], row["validation_bleu"]) == (winner.trial, winner.bleu)
        assert row["learning_rate"] == winner.settings["learning_rate"]


def test_a_dry_run_shows_the_draws_and_writes_nothing(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = ["tune", str(tiny_toml), "--out", str(tmp_path / "out"), *EFFORT]
    assert main([*command, "--dry-run", "--json", "-q"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "out").exists()
    assert main([*command, "-q"]) == 0
    for each in read_trials(tmp_path / "out"):
        assert {"trial": each.trial, **each.settings} == drawn[each.trial - 1]
    capsys.readouterr()
    assert main([*command, "--dry-run", "-q"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 2


def test_a_mistake_leaves_no_folder(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    for options in (["--trials", "0"], ["--space", "dropout=3"], ["--set", "data.root=absent"]):
        refusal("tune", tiny_toml, "--out", tmp_path / "out" / "deep", "-q", *options)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").write_text("")
    for dry in ([], ["--dry-run"]):
        assert "is not a folder" in refusal("tune", tiny_toml, "--out", tmp_path / "out", "-q", *dry)


def test_without_optuna(tiny_toml: Path, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan, "find_spec", lambda name: None)
    line = refusal("tune", tiny_toml, "--out", tmp_path / "out", "-q")
    assert line == "attnbench tune needs optuna, which is not installed: pip install 'attnbench[tune]'"
