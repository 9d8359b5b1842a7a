"""A dry run checks everything, estimates what is left, and writes nothing."""

import json
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment import dry_run as estimate
from compare.experiment import run as run_all
from compare.experiment.dry_run import dry_run, estimate_experiment
from compare.report.score_tables import render_estimates
from tests.kits.runs import ROWS, files


def test_a_dry_run_checks_everything_and_writes_nothing(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_all, "run_one", lambda *_: pytest.fail("a dry run starts nothing"))
    assert main(["run", str(tiny_toml), "--dry-run"]) == 0
    captured = capsys.readouterr()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in captured.out.splitlines()[2:4]]
    assert [row[:2] for row in rows] == [[name, "new"] for name in ROWS]
    assert [row[4:6] for row in rows] == [["90", "90"]] * 2
    assert "all runs: about" in captured.out
    assert "batches per epoch" in captured.err
    assert main(["run", str(tiny_toml), "--dry-run", "-q", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    runs = json.loads(captured.out)
    assert [run["name"] for run in runs] == list(ROWS)
    assert all(run["train_s"] > 0 and run["memory_bytes"] == 16 * run["params"] for run in runs)
    assert not list(tmp_path.iterdir())


def test_an_estimate_counts_what_is_left_and_only_that(copy: Path, tiny_toml: Path):
    """A run that has ended, one that was stopped at update 40 of 90, and a new one."""
    (copy / ROWS[1] / "result.json").unlink()
    log = copy / ROWS[1] / "metrics.jsonl"
    lines = [line for line in log.read_text().splitlines() if json.loads(line)["update"] <= 40]
    log.write_text("\n".join(lines) + "\n")
    done, stopped, *new = estimate_experiment(load_experiment(tiny_toml), copy, seeds=[1, 2])
    truth = json.loads((copy / ROWS[0] / "result.json").read_text())
    assert (done.name, done.status, done.updates_left, done.train_s) == (ROWS[0], "done", 0, 0)
    assert done.params == truth["params"]
    averaged = estimate_experiment(load_experiment(tiny_toml, ["train.ema=0.9"]), copy.parent / "new")[0]
    assert averaged.memory_bytes == 5 * done.memory_bytes / 4
    assert (stopped.status, stopped.updates, stopped.updates_left) == ("unfinished", 90, 50)
    assert [(run.status, run.updates_left) for run in new] == [("new", 90)] * 2
    assert stopped.train_s == pytest.approx(new[1].train_s * 50 / 90)


def test_a_model_that_is_too_large_for_a_short_look_is_not_timed(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(estimate, "fresh_update_work", lambda *_: pytest.fail("a model is built"))
    for name in ("MAX_CPU_BYTES", "MAX_SENTENCE_PARTS"):
        with monkeypatch.context() as patch:
            patch.setattr(estimate, name, 0)
            found = estimate_experiment(load_experiment(tiny_toml), tmp_path / "run")
        assert [run.train_s for run in found] == [None, None]
        assert "training: unknown where" in render_estimates(found)


def test_a_dry_run_of_a_finished_folder_changes_nothing(finished: Path, tiny_toml: Path):
    before = files(finished)
    rows = dry_run(load_experiment(tiny_toml), finished)
    assert [row.name for row in rows] == list(ROWS)
    assert files(finished) == before
