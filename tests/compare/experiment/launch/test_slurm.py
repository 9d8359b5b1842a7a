"""``run --slurm`` and ``tune --slurm`` with jobs as processes of this machine: results, stops, refusals."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from compare.cli import main
from compare.experiment.launch import slurm_queue
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.launch.slurm_queue import FOLDER, JOBS, SlurmQueue
from compare.experiment.tune.journal import Journal
from compare.experiment.tune.plan import TuningPlan, plan_search
from compare.experiment.tune.search import tune_experiment
from compare.experiment.tune.slurm_trials import finish_in_job
from compare.system.signals import lock_folder
from compare.training.metrics_log import read_metrics
from compare.training.serialization import CHECKPOINTS, METRICS, STATE
from tests.kits.cli import Refusal
from tests.kits.paths import ROOT
from tests.kits.runs import ROWS
from tests.reliability.contents import differences, leftovers, read_contents

pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="sends signals"),
]
LOCAL = ["--slurm", "cluster=local"]
EFFORT = TuningPlan(trials=1, updates=30)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs inherit the environment; the last bits of weights may depend on the number of threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def process_of(run: Path) -> int:
    """The process that works on a run."""
    return int(json.loads((run / ".lock").read_bytes())["pid"])


def test_a_stopped_command_leaves_its_jobs_and_collects_them_when_it_is_given_again(
    tiny_toml: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """And a job that gets the signal of its time limit saves its state and is queued again."""
    folder, log = tmp_path / "out", list[str]()
    command = ["run", str(tiny_toml), "--out", str(folder), "--slurm", "cluster=local,time=10"]
    with subprocess.Popen(
        [sys.executable, "-m", "compare", *command, "-q"], stderr=subprocess.PIPE, text=True
    ) as first:
        wait_for((folder / ROWS[0] / CHECKPOINTS / STATE).exists)
        worker = process_of(folder / ROWS[0])
        os.kill(worker, signal.SIGSTOP)  # until the command is given again
        first.send_signal(signal.SIGINT)
        assert first.stderr
        said = first.stderr.readline()  # not more: the jobs hold the pipe
        assert first.wait() == 130
    jobs = json.loads((folder / FOLDER / JOBS).read_text())
    assert re.fullmatch(
        rf"stopped waiting for jobs {jobs[ROWS[0]]}(, \d+)?, which go on; run the same command again .*\n",
        said,
    )

    def reach_the_limit() -> None:
        os.kill(worker, signal.SIGUSR2)
        os.kill(worker, signal.SIGCONT)
        path = folder / FOLDER / f"{jobs[ROWS[0]]}_0_log.err"
        wait_for(lambda: "stopped at update" in path.read_text())
        log.append(path.read_text())

    timer = threading.Timer(2, reach_the_limit)
    timer.start()
    assert main(command) == 0
    timer.join()
    errors = capsys.readouterr().err
    assert f"luong-seed1: job {jobs[ROWS[0]]}, submitted by an earlier call" in errors
    assert "stopped at update" in log[0]
    assert errors.index("luong-seed1: done") < errors.index("timing: job")
    for row in ROWS:
        assert differences(read_contents(folder / row), read_contents(finished / row)) == []
    assert leftovers(folder) == []
    assert not (folder / FOLDER).exists()


def test_a_stopped_search_leaves_its_jobs_and_writes_the_winners_when_it_is_given_again(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A trial that gets the signal of its time limit continues from its checkpoint; one is on no job."""
    pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")
    folder, alone = tmp_path / "out", tmp_path / "alone"
    trial = folder / "trials" / "luong-1"
    command = ["tune", str(tiny_toml), "--out", str(folder), "--trials", "1", "--updates", "30"]
    command += ["--slurm", "cluster=local,time=10"]
    with subprocess.Popen(
        [sys.executable, "-m", "compare", *command, "-q", "--only", "luong"],
        stderr=subprocess.PIPE,
        text=True,
    ) as first:
        wait_for((trial / CHECKPOINTS / STATE).exists)
        worker = process_of(trial)
        os.kill(worker, signal.SIGSTOP)  # until the command is given again
        first.send_signal(signal.SIGINT)
        assert first.stderr
        said = first.stderr.readline()
        assert first.wait() == 130
    job = json.loads((folder / FOLDER / JOBS).read_text())["luong trial 1"]
    assert said.startswith(f"stopped waiting for jobs {job}, which go on; run the same command again")
    log = folder / FOLDER / f"{job}_0_log.err"
    stopped: list[str] = []

    def reach_the_limit() -> None:
        os.kill(worker, signal.SIGUSR2)
        os.kill(worker, signal.SIGCONT)
        wait_for(lambda: "stopped at update" in log.read_text())
        stopped.append(log.read_text())

    timer = threading.Timer(2, reach_the_limit)
    timer.start()
    with lock_folder(folder / "trials" / "transformer-1"):
        assert main(command) == 1
    timer.join()
    errors = capsys.readouterr().err
    assert f"luong trial 1: job {job}, submitted by an earlier call" in errors
    assert "luong trial 1: done" in errors
    assert re.search(r"transformer trial 1: left out: \S+ is in use by another process", errors)
    assert "1 trial has not ended: the same command again" in errors
    assert "stopped at update" in stopped[0]
    lines = [line for line in read_metrics(trial / METRICS) if line["kind"] == "train"]
    assert sum(line["updates"] for line in lines) == EFFORT.updates  # none was repeated
    assert not (folder / "best.toml").exists()
    assert main([*command, "-q"]) == 0
    tune_experiment(tiny_toml, alone, EFFORT)
    assert differences(read_contents(folder), read_contents(alone)) == []
    assert leftovers(folder) == []
    assert not (folder / FOLDER).exists()


def test_repeated_trials_are_a_second_array(tiny_toml: Path, tmp_path: Path):
    """It depends on the results of the first one which trials they are."""
    pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")
    folder, alone = tmp_path / "out", tmp_path / "alone"
    command = [
        "tune",
        str(tiny_toml),
        "--out",
        str(folder),
        "--trials",
        "2",
        "--updates",
        "4",
        "--only",
        "luong",
    ]
    command += ["--seeds", "1,2", "--finalists", "2", "--slurm", "cluster=local,time=10", "-q"]
    assert main(command) == 0
    plan = TuningPlan(trials=2, updates=4, only=["luong"], seeds=(1, 2), finalists=2)
    assert len(tune_experiment(tiny_toml, alone, plan).trials) == 4
    assert differences(read_contents(folder), read_contents(alone)) == []
    assert leftovers(folder) == []
    assert not (folder / FOLDER).exists()


def test_a_job_refuses_a_corpus_that_has_changed_since_its_search_was_begun(tiny_toml: Path, tmp_path: Path):
    pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")
    tune_experiment(tiny_toml, tmp_path / "out", TuningPlan(trials=1, updates=2))
    corpus = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    for side in ("en", "de"):
        path = corpus / f"valid.{side}"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    search = plan_search(tiny_toml, TuningPlan(trials=2, updates=2), [f"data.root={corpus.as_posix()}"])
    journal = Journal(tmp_path / "out", search.plan.space, search.plan.seed, {})
    with pytest.raises(ValueError, match="was begun with other data"):
        finish_in_job(search.trials({})[-1], journal)
    assert not (tmp_path / "out" / "trials" / "transformer-2").exists()


@pytest.mark.parametrize("command", ["run", "tune"])
def test_what_cannot_be_submitted_is_refused(
    command: str, tiny_toml: Path, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
):
    if command == "tune":
        pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")
    run = [command, tiny_toml, "--out", tmp_path / "out"]
    assert refusal(*run, "--slurm", "gpu=1").startswith("--slurm gpu=1: unknown key 'gpu'")
    assert "with --slurm, the cluster decides" in refusal(*run, *LOCAL, "--jobs", "2")
    by_time = {"run": "is measured on the device", "tune": "cannot be tuned"}[command]
    assert f"budget.match = 'time' {by_time}" in refusal(
        *run, *LOCAL, "--set", "budget.match=time", "--set", "budget.amount=60"
    )
    gpu = [
        *run,
        "--slurm",
        "cluster=local,gpus=1",
        "--set",
        "train.device=auto",
        "--set",
        "train.precision=auto",
    ]
    assert "add --set train.precision=bf16 or fp32" in refusal(*gpu)
    assert "add --set train.precision=bf16 or fp32" in refusal(*gpu, "--dry-run")
    monkeypatch.setattr(slurm_queue.shutil, "which", lambda name: None)
    assert refusal(*run, "--slurm", "partition=p") == (
        "--slurm: no sbatch here: run this on a machine that submits jobs to the cluster"
    )
    monkeypatch.setattr(slurm_queue, "find_spec", lambda name: None)
    assert refusal(*run, *LOCAL) == (
        "--slurm needs submitit, which is not installed: pip install 'attnbench[slurm]'"
    )
    assert not (tmp_path / "out").exists()


def test_a_search_is_no_work_for_jobs_and_a_cluster_at_once(tiny_toml: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"^jobs = 2: the cluster decides how many trials run at a time"):
        tune_experiment(tiny_toml, tmp_path, jobs=2, slurm=SlurmOptions(cluster="local"))


def test_the_queue_knows_which_jobs_have_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    queue = SlurmQueue(tmp_path, SlurmOptions())
    queue.folder.mkdir()
    (queue.folder / JOBS).write_text('{"a": "7_0", "b": "7_1", "timing": "8"}')
    programs = tmp_path / "programs"
    programs.mkdir()
    squeue = programs / "squeue"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    squeue.write_text("#!/bin/sh\n")
    squeue.chmod(0o755)
    assert SlurmQueue(tmp_path / "new", SlurmOptions()).queued() == {}
    squeue.write_text(f'#!/bin/sh\ncase "$*" in *--name={queue.name}*) echo 7_1;; *) echo 70;; esac\n')
    squeue.chmod(0o755)
    assert queue.queued() == {"b": "7_1"}
    assert SlurmQueue(tmp_path / "other", SlurmOptions()).name != queue.name
    squeue.write_text("#!/bin/sh\necho 7_1\necho 9_0\n")  # 9_0: of a call that was killed after sbatch
    assert queue.active(["7_1", "8"]) == {"7_1"}
    with pytest.raises(ValueError, match=rf"jobs 9_0 were submitted by .* `scancel --name={queue.name}`"):
        queue.queued()
    squeue.write_text("#!/bin/sh\necho no controller >&2\nexit 1\n")
    with pytest.raises(ValueError, match=r"^--slurm: squeue does not answer: no controller$"):
        queue.queued()
    (queue.folder / JOBS).write_text('{"a": 7}')
    with pytest.raises(ValueError, match=r"jobs.json: expected the ids of jobs by name"):
        queue.queued()
