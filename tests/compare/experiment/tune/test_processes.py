"""Several workers on one search, one of which is killed: each trial is ended once, with the same results."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compare.cli import main
from compare.experiment.tune.plan import TuningPlan
from compare.experiment.tune.search import tune_experiment
from compare.experiment.tune.trial_log import read_trials
from compare.training.metrics_log import read_metrics
from tests.kits.paths import ROOT
from tests.reliability.contents import differences, leftovers, read_contents

pytestmark = pytest.mark.slow

pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")

UPDATES = 30
LABELS = ("luong", "transformer")


def start(toml: Path, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "compare", "tune", str(toml), "--out", str(folder)]
    command += ["--trials", "2", "--updates", str(UPDATES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    )


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes are killed")
def test_two_workers_go_on_where_a_third_was_killed(tiny_toml: Path, tmp_path: Path):
    folder = tmp_path / "out"
    killed = start(tiny_toml, folder)
    state = folder / "trials" / "luong-1" / "checkpoints" / "trainer.pt"
    while not state.exists() and killed.poll() is None:
        time.sleep(0.005)
    killed.kill()
    assert "Traceback" not in killed.communicate()[1]
    workers = [start(tiny_toml, folder) for _ in "ab"]
    errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert "Traceback" not in "".join(errors)
    statuses = sorted(worker.returncode for worker in workers)
    assert statuses in ([0, 0], [0, 1])  # 1: a trial was left to the other worker
    assert all(
        sum(f"{label} trial {number}: learning_rate" in error for error in errors) == 1
        for label in LABELS
        for number in (1, 2)
    )
    alone = tune_experiment(tiny_toml, tmp_path / "alone", TuningPlan(trials=2, updates=UPDATES))
    assert [(each.label, each.trial, each.bleu, each.loss) for each in read_trials(folder)] == [
        (each.label, each.trial, each.bleu, each.loss) for each in alone.trials
    ]
    assert (folder / "best.toml").read_text() == (tmp_path / "alone" / "best.toml").read_text()
    for metrics in folder.glob("trials/*/metrics.jsonl"):
        lines = [line for line in read_metrics(metrics) if line["kind"] == "train"]
        assert sum(line["updates"] for line in lines) == UPDATES
    assert not [path for path in folder.rglob("*") if path.name == ".lock" or path.suffix in (".tmp", ".pt")]


def test_jobs_end_each_trial_once_with_the_same_results(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The space of the command line reaches the workers, as numbers and not as rounded text."""
    arguments = ["tune", str(tiny_toml), "--trials", "2", "--updates", "12"]
    arguments += ["--space", "learning_rate=0.001234567:0.01", "--space", "warmup_updates=2,3"]
    assert main([*arguments, "--out", str(tmp_path / "alone"), "-q"]) == 0
    assert main([*arguments, "--out", str(tmp_path / "jobs"), "--jobs", "2"]) == 0
    errors = capsys.readouterr().err
    assert all(errors.count(f"{label} trial {n}: learning_rate") == 1 for label in LABELS for n in (1, 2))
    assert differences(read_contents(tmp_path / "jobs"), read_contents(tmp_path / "alone")) == []
    assert leftovers(tmp_path / "jobs") == []
