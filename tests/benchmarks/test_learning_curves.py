"""Learning curves as CSV: every validation of every run, finished or not."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.learning_curves import learning_curves
from compare.training.serialization import METRICS


def write_log(run: Path, *lines: dict[str, object]) -> None:
    run.mkdir(parents=True)
    (run / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def validation(update: int, bleu: float | None) -> dict[str, object]:
    return {
        "kind": "valid",
        "update": update,
        "epoch": 1,
        "seconds": update / 3,
        "loss": 2.5,
        "bleu": bleu,
        "other": 1.0,
    }


def test_every_validation_is_a_row(tmp_path: Path):
    resumed = [validation(100, 1.0), validation(100, 3.14159), validation(200, None)]
    write_log(tmp_path / "runs" / "b" / "lstm-seed2", *resumed)
    ended = {"kind": "final", "update": 300, "bleu": 5.0, "loss": 2.0}
    write_log(tmp_path / "runs" / "a" / "lstm-seed1", validation(300, 5.0), ended)
    write_log(tmp_path / "runs" / "c" / "lstm-seed1")  # killed before its first validation
    file = tmp_path / "curves.csv"
    command = [sys.executable, "-m", "benchmarks.learning_curves", str(tmp_path / "runs"), str(file)]
    subprocess.run(command, check=True)
    rows = pd.read_csv(file).astype(object).where(lambda frame: frame.notna(), None).to_numpy().tolist()
    assert rows == [
        ["a", "lstm-seed1", 300, 1, 100, 2.5, 5.0],
        ["b", "lstm-seed2", 100, 1, 33, 2.5, 3.14],
        ["b", "lstm-seed2", 200, 1, 67, 2.5, None],
    ]


def test_a_folder_without_runs_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="holds no experiment with a run"):
        learning_curves(tmp_path)
