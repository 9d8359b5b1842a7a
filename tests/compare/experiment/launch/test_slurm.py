"""``run --slurm`` with jobs as processes of this machine: rows, preemption, a stopped parent, refusals."""

import json
import os
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
from compare.training.file_names import CHECKPOINTS, STATE
from tests.kits.cli import Refusal
from tests.kits.paths import ROOT
from tests.kits.runs import ROWS
from tests.reliability.contents import differences, leftovers, read_contents

pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="sends signals")
LOCAL = ["--slurm", "cluster=local,time=10"]


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


@pytest.mark.slow
def test_jobs_make_the_rows_of_a_serial_run_and_are_queued_again_when_preempted(
    tiny_toml: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """SIGUSR2 is what submitit asks Slurm for before the time limit; the log of the job tells what it did."""
    folder, logs = tmp_path / "out", list[str]()

    def preempt() -> None:
        wait_for((folder / ROWS[0] / CHECKPOINTS / STATE).exists)
        os.kill(process_of(folder / ROWS[0]), signal.SIGUSR2)
        (job,) = [
            job for name, job in json.loads((folder / FOLDER / JOBS).read_text()).items() if name == ROWS[0]
        ]
        log = folder / FOLDER / f"{job}_0_log.err"
        wait_for(lambda: "stopped at update" in log.read_text())
        logs.append(log.read_text())

    thread = threading.Thread(target=preempt)
    thread.start()
    assert main(["run", str(tiny_toml), "--out", str(folder), *LOCAL]) == 0
    thread.join()
    errors = capsys.readouterr().err
    assert "stopped at update" in logs[0]
    assert all(f"{name}: job " in errors for name in (*ROWS, "timing"))
    assert errors.index("luong-seed1: done") < errors.index("timing: job")
    for row in ROWS:
        assert differences(read_contents(folder / row), read_contents(finished / row)) == []
    assert leftovers(folder) == []
    assert not (folder / FOLDER).exists()


@pytest.mark.slow
def test_a_stopped_parent_leaves_the_jobs_and_the_same_command_collects_them(tiny_toml: Path, tmp_path: Path):
    """And a job that is ended by SIGTERM saves its state, and is named."""
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "compare", "run", str(tiny_toml), "--out", str(folder), *LOCAL]
    settings = ["--set", "train.max_updates=100000", "--set", "train.log_every=100"]
    with subprocess.Popen([*command, *settings, "-q"], stderr=subprocess.PIPE, text=True) as parent:
        for row in ROWS:
            wait_for((folder / row / CHECKPOINTS / STATE).exists)
        parent.send_signal(signal.SIGINT)
        assert parent.stderr
        said = parent.stderr.readline()  # not more: the jobs hold the pipe
        assert parent.wait() == 130
    jobs = json.loads((folder / FOLDER / JOBS).read_text())
    assert said == (
        f"stopped waiting for jobs {', '.join(jobs.values())}, which go on; "
        "run the same command again to continue\n"
    )
    with subprocess.Popen([*command, *settings], stderr=subprocess.PIPE, text=True) as again:
        assert again.stderr
        seen = ""
        while "transformer-seed1: job" not in seen:
            seen += again.stderr.readline()
        assert all(f"{name}: job {job}, submitted by an earlier call" in seen for name, job in jobs.items())
        for row in ROWS:
            os.kill(process_of(folder / row), signal.SIGTERM)
        errors = again.stderr.read()
    assert again.returncode == 1
    for name, job in jobs.items():
        log = folder / FOLDER / f"{job}_0_log.err"
        assert f"{name}: job {job} ended too early (see {log}); run the same command again" in errors
        assert "stopped at update" in log.read_text()


def test_what_cannot_be_submitted_is_refused(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
):
    run = ["run", tiny_toml, "--out", tmp_path / "out"]
    assert refusal(*run, "--slurm", "gpu=1").startswith("--slurm gpu=1: unknown key 'gpu'")
    assert "with --slurm, the cluster decides" in refusal(*run, *LOCAL, "--jobs", "2")
    assert "budget.match = 'time' is measured on the device" in refusal(
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
    monkeypatch.setattr(slurm_queue.shutil, "which", lambda name: None)
    assert refusal(*run, "--slurm", "partition=p") == (
        "--slurm: no sbatch here: run this on a machine that submits jobs to the cluster"
    )
    monkeypatch.setattr(slurm_queue, "find_spec", lambda name: None)
    assert refusal(*run, *LOCAL) == (
        "--slurm needs submitit, which is not installed: pip install 'attnbench[slurm]'"
    )
    assert not (tmp_path / "out").exists()


def test_the_queue_knows_which_jobs_have_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    queue = SlurmQueue(tmp_path, SlurmOptions())
    assert queue.queued() == {}
    queue.folder.mkdir()
    (queue.folder / JOBS).write_text('{"a": "7_0", "b": "7_1", "timing": "8"}')
    programs = tmp_path / "programs"
    programs.mkdir()
    squeue = programs / "squeue"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    squeue.write_text("#!/bin/sh\necho 7_1\necho 70\n")
    squeue.chmod(0o755)
    assert queue.queued() == {"b": "7_1"}
    squeue.write_text("#!/bin/sh\necho no controller >&2\nexit 1\n")
    with pytest.raises(ValueError, match=r"^--slurm: squeue does not answer: no controller$"):
        queue.queued()
    (queue.folder / JOBS).write_text('{"a": 7}')
    with pytest.raises(ValueError, match=r"jobs.json: expected the ids of jobs by name"):
        queue.queued()
