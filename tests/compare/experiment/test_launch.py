"""Several processes of one experiment: ``--jobs``, ``--slurm``, torchrun; equal rows, kills, refusals.

As a program, this file runs an experiment in processes of torchrun, which end in another way each time.

    python -m tests.compare.experiment.test_launch CONFIG FOLDER

1. Two processes; one has too little memory for update 5.
2. Two processes; the second is killed.
3. Two processes; the second gets SIGTERM.
4. Three processes, which finish the experiment.

It prints a JSON list of exit statuses per call.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from compare.check import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment import launch
from compare.experiment.launch import Launch, parse_launch
from compare.experiment.run import run_experiment
from compare.results.store import read_result
from compare.system.processes import pick_own_device
from compare.training import trainer
from compare.training.checkpoints import CHECKPOINTS, STATE
from tests.kits.common import ROOT, ROWS, Refusal, differences, files, leftovers, read_contents
from tests.kits.processes import LIMIT_S, environment, fork, statuses
from tests.kits.training import metrics

sends_signals = pytest.mark.skipif(not hasattr(os, "fork"), reason="sends signals")


@pytest.fixture
def one_thread(without_plots: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The last bits of weights may depend on the number of threads, and that on the cores of this machine."""
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


def at_state(run: Path, act: Callable[[], object]) -> threading.Thread:
    """Calls a function once a run has saved a state."""
    thread = threading.Thread(target=lambda: (wait_for((run / CHECKPOINTS / STATE).exists), act()))
    thread.start()
    return thread


def process_of(run: Path) -> int:
    """The process that works on a run."""
    return int(json.loads((run / ".lock").read_bytes())["pid"])


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_rows_are_those_of_a_serial_run_and_one_that_fails_stops_no_other(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tmp_path / "three.toml"
    wild = '[[models]]\npreset = "lstm"\nlabel = "wild"\nlearning_rate = 1e38\nhidden_size = 8\n'
    text = tiny_toml.read_text().replace("max_updates = 90", "max_updates = 12")
    config.write_text(text.replace("[[models]]", f"{wild}\n[[models]]", 1))
    assert main(["run", str(config), "--out", str(tmp_path / "serial"), "-q"]) == 1
    capsys.readouterr()
    assert main(["run", str(config), "--out", str(tmp_path / "jobs"), "--jobs", "2"]) == 1
    captured = capsys.readouterr()
    assert next(line for line in captured.out.splitlines() if line.startswith("wild "))
    assert "wild-seed1: failed: loss or gradient became NaN or infinite" in captured.err
    assert "luong-seed1: update 12 of 12" in captured.err
    assert captured.err.index("transformer-seed1: done") < captured.err.index("timing 2 models in turn")
    assert differences(read_contents(tmp_path / "jobs"), read_contents(tmp_path / "serial")) == []
    assert leftovers(tmp_path / "jobs") == []
    before = files(tmp_path / "jobs" / "luong-seed1")
    assert main(["run", str(config), "--out", str(tmp_path / "jobs"), "--jobs", "2"]) == 1
    assert "all 3 runs have ended" in capsys.readouterr().err
    assert files(tmp_path / "jobs" / "luong-seed1") == before


@sends_signals
@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_what_a_killed_process_leaves_is_done_at_the_end(
    tiny_toml: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "jobs"
    run = folder / ROWS[0]
    thread = at_state(run, lambda: os.kill(process_of(run), signal.SIGKILL))
    assert main(["run", str(tiny_toml), "--out", str(folder), "--jobs", "2"]) == 0
    thread.join()
    errors = capsys.readouterr().err
    assert "a process has ended with status -9: its run is finished in this process" in errors
    assert "continues from update" in (run / "log.txt").read_text()  # in this process or in the other one
    for row in ROWS:
        assert differences(read_contents(folder / row), read_contents(finished / row)) == []
    assert leftovers(folder) == []


@sends_signals
@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_signal_to_the_first_process_saves_all_runs(
    signum: signal.Signals, status: int, tiny_toml: Path, tmp_path: Path
):
    """Even if it is killed; the others then end soon after."""
    folder = tmp_path / "jobs"
    command = [sys.executable, "-m", "compare", "run", str(tiny_toml), "--out", str(folder)]
    command += ["--jobs", "2", "-q", "--set", "train.max_updates=100000", "--set", "train.checkpoint_every=3"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for row in ROWS:
            wait_for((folder / row / CHECKPOINTS / STATE).exists)
        workers = [process_of(folder / row) for row in ROWS]
        assert os.getpid() not in workers
        process.send_signal(signum)
        assert process.wait(60) == status
        assert process.stderr
        if signum != signal.SIGKILL:
            assert process.stderr.read() == (
                "stopped, and all processes have saved their states; run the same command again to continue\n"
            )
    for worker in workers:
        wait_for(lambda: not Path(f"/proc/{worker}").exists())  # noqa: B023
        assert not Path(f"/proc/{worker}").exists()
    assert [path.name for path in folder.rglob("*.tmp")] == []
    for row in ROWS:
        state = torch.load(folder / row / CHECKPOINTS / STATE, weights_only=True)
        last = (folder / row / "metrics.jsonl").read_text().splitlines()[-1]
        assert state["progress"]["update"] == json.loads(last)["update"]  # not only of the last regular save


@sends_signals
@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_jobs_of_a_cluster_save_before_their_time_limit_and_are_queued_again(
    tiny_toml: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The cluster is this machine; a signal to the waiting process leaves the jobs."""
    pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
    folder = tmp_path / "out"
    run, said = folder / ROWS[0], list[str]()

    def reach_the_limit() -> None:
        os.kill(process_of(run), signal.SIGUSR2)
        wait_for(lambda: any("stopped at" in log.read_text() for log in (folder / "slurm").glob("*.err")))
        said.append("stopped")

    thread = at_state(run, reach_the_limit)
    command = ["run", str(tiny_toml), "--out", str(folder), "--slurm", "cluster=local,time=10"]
    assert main(command) == 0
    thread.join()
    assert said == ["stopped"]
    errors = capsys.readouterr().err
    assert errors.count("share the runs; their output is in") == 2  # the last job times the models
    assert "timing greedy" not in errors
    for row in ROWS:
        assert differences(read_contents(folder / row), read_contents(finished / row)) == []
    assert leftovers(folder) == []
    assert not (folder / "slurm").exists()


def test_the_options_of_a_launch():
    assert parse_launch("") is parse_launch("1") is None
    assert parse_launch("auto") == Launch()
    assert parse_launch("3") == Launch(jobs=3)
    options = parse_launch("2", "partition=gpu, gpus=2,time=12:30,mem=7.5,cpus=4,qos=high")
    slurm = {"partition": "gpu", "gpus": 2, "time": 750, "mem": 7.5, "cpus": 4, "qos": "high"}
    assert options == Launch(jobs=2, slurm=slurm)
    assert parse_launch("", "time=90") == Launch(slurm={"time": 90})


AUTO = ("--set", "train.device=auto", "--set", "train.precision=auto")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jobs", "two"], "--jobs two: must be auto, or a whole number of at least 1"),
        (["--slurm", "gpu=1"], "--slurm gpu=1: unknown key 'gpu'; did you mean 'gpus'?"),
        (["--slurm", "gpus=x"], "--slurm gpus=x: gpus needs a value, such as time=90, time=12:00, mem=32"),
        (["--slurm", "cluster=local,gpus=1", *AUTO, "--dry-run"], "add --set train.precision=bf16 or fp32"),
        (["--slurm", "partition=p"], "no sbatch here: run this on a machine that submits jobs"),
    ],
)
def test_refusals(
    options: list[str],
    message: str,
    tiny_toml: Path,
    tmp_path: Path,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
):
    if options[0] == "--slurm":
        pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    assert message in refusal("run", tiny_toml, "--out", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_cores_and_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    names = "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"

    def shares(number: int, device: str) -> list[tuple[str | None, ...]]:
        return [tuple(map(environment.get, names)) for environment in launch._environments(number, device)]

    assert shares(3, "cpu") == [("2", None)] * 3
    assert shares(3, "cuda") == [("2", "0"), ("2", "1"), ("2", "0")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert shares(2, "cuda") == [("4", "5"), ("4", "7")]
    assert shares(2, "cuda:1") == [("4", "5,7")] * 2
    assert (launch._suitable_jobs("cpu"), launch._suitable_jobs("cuda")) == (4, 2)


def test_jobs_are_of_one_call(tmp_path: Path):
    """The same command finds its jobs again, and one with other seeds does not wait for them."""
    call = partial(run_experiment, folder=tmp_path)
    first, again, other = (launch.Work(partial(call, seeds=seeds)) for seeds in ([1], [1], [2]))
    assert launch.job_name(first, tmp_path) == launch.job_name(again, tmp_path)
    assert launch.job_name(first, tmp_path) != launch.job_name(other, tmp_path)

    def call_of_a_process() -> Callable[[], None]:
        def call() -> None: ...

        return call

    here, there = (launch.Work(call_of_a_process()) for _ in range(2))  # functions at two addresses
    assert launch.job_name(here, tmp_path) == launch.job_name(there, tmp_path)


def test_the_cluster_is_asked_for_the_jobs_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    squeue = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    squeue.write_text('#!/bin/sh\ncase "$*" in *--name=mine*) echo 7_1; echo 7_2;; esac\n')
    squeue.chmod(0o755)
    assert launch._queued("mine") == ["7_1", "7_2"]
    assert launch._queued("other") == []
    squeue.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ValueError, match=r"^--slurm: squeue does not answer"):
        launch._queued("mine")


EQUAL = ("updates", "epochs", "tokens_seen", "best_update", "bleu", "chrf", "batch_hash", "settings_hash")
"""Figures that do not depend on the number of processes; those of the loss are equal but for rounding."""


@pytest.fixture(scope="module")
def config(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first model of the tiny experiment, for a shorter time and without dropout."""
    text = tiny_toml.read_text().replace("max_updates = 90", "max_updates = 24")
    text = text.replace("valid_every = 40", "valid_every = 12").replace("dropout = 0.3", "dropout = 0.0")
    path = tmp_path_factory.mktemp("short") / "tiny.toml"
    path.write_text("[[models]]".join(text.split("[[models]]")[:2]))
    return path


class Ended(NamedTuple):
    """Results of the program in this file."""

    folder: Path
    statuses: list[list[int]]
    stderr: list[str]


@pytest.fixture(scope="module")
def ended(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("ended") / "run"
    command = [sys.executable, "-m", "tests.compare.experiment.test_launch", str(config), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return Ended(folder, json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines())


@pytest.mark.slow
def test_all_processes_end_together_with_one_line(ended: Ended):
    no_memory, killed, stopped, finished = ended.statuses
    assert no_memory == [1, 0]
    record = json.loads((ended.folder.parent / "failed.json").read_text())
    assert (record["status"], record["reason"]) == (
        "unfinished",
        "out of memory: no memory left in process 1",
    )
    assert killed == [2, -signal.SIGKILL]
    assert stopped == [143, 0]
    assert finished == [0, 0, 0]
    lines = [line for line in ended.stderr if "out of memory" not in line]
    assert len(lines) == 2, ended.stderr
    assert lines[0].startswith("error: another process of this job has ended or cannot be reached")
    assert lines[1].startswith("stopped at update")


@pytest.mark.slow
def test_two_then_three_processes_give_the_row_of_one(ended: Ended, config: Path, tmp_path: Path):
    alone = tmp_path / "run"
    run_experiment(load_experiment(config), alone)
    log = metrics(ended.folder / "luong-seed1")
    counts = [line.get("processes", 1) for line in log if line["kind"] == "train"]
    assert sorted(set(counts), key=counts.index) == [2, 3]
    result, expected = (read_result(folder / "luong-seed1") for folder in (ended.folder, alone))
    for name in EQUAL:
        assert getattr(result, name) == getattr(expected, name), name
    assert result.valid_loss == pytest.approx(expected.valid_loss, rel=1e-4)
    assert (ended.folder / "luong-seed1/test.hyp").read_text() == (alone / "luong-seed1/test.hyp").read_text()
    assert expected.processes is None
    assert expected.together_tokens_per_s_per_device is None
    assert (result.processes, result.devices, result.nodes) == (3, 1, 1)
    assert result.together_tokens_per_s_per_device > 0
    updates = [line["update"] for line in metrics(ended.folder / "luong-seed1") if line["kind"] == "train"]
    assert updates == list(range(1, 25))
    assert not list(ended.folder.rglob("*.tmp"))
    assert not list(ended.folder.rglob(".lock"))
    assert not check_experiment(ended.folder).differences


def set_environment(monkeypatch: pytest.MonkeyPatch, rank: int = 0) -> None:
    for name, value in environment(rank, size=2, port=1).items():
        monkeypatch.setenv(name, value)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    set_environment(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"2 processes on .*, which has 1 GPUs: start at most one per GPU"):
        pick_own_device("cuda")
    with pytest.raises(ValueError, match=r"train\.device is cuda:1, but several processes"):
        pick_own_device("cuda:1")
    assert pick_own_device("cpu") == "cpu"


@pytest.mark.parametrize("command", ["tune", "table"])
def test_other_commands_are_refused_under_torchrun(
    command: str, config: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    set_environment(monkeypatch)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert refusal(command, config).startswith(f"{command} runs in one process: start it without torchrun")


def test_an_error_is_printed_by_process_0_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    set_environment(monkeypatch, rank=1)
    assert main(["run", str(tmp_path / "missing.toml")]) == 2
    assert capsys.readouterr().err == ""


# The program.


def start(config: str, folder: Path, size: int, prepare: Callable[[], None] = lambda: None) -> list[int]:
    def work() -> int:
        prepare()
        return main(["run", config, "--out", str(folder), "-q"])

    return fork(size, work)


def end(pid: int, signum: signal.Signals, log: Path, lines: int) -> None:
    """Send a signal to a process as soon as the log has so many lines."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        with suppress(FileNotFoundError):  # a run that starts from the beginning deletes its log
            if log.read_text().count("\n") >= lines:
                break
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(pid, signum)


def fail_at_update_5() -> None:
    """Let process 1 have too little memory."""
    real, calls = trainer.add_gradients, []

    def add_gradients(*arguments: Any, **settings: Any) -> Any:
        calls.append(None)
        if len(calls) == 5 and os.environ["RANK"] == "1":
            raise MemoryError("no memory left in process 1")
        return real(*arguments, **settings)

    trainer.add_gradients = add_gradients


def end_again_and_again(config: str, folder: Path) -> None:
    log = folder / "luong-seed1" / "metrics.jsonl"
    ended = [statuses(start(config, folder, 2, fail_at_update_5))]
    (folder.parent / "failed.json").write_bytes((folder / "luong-seed1" / "result.json").read_bytes())
    for signum, lines in ((signal.SIGKILL, 6), (signal.SIGTERM, 14)):
        pids = start(config, folder, 2)
        end(pids[-1], signum, log, lines)
        ended.append(statuses(pids))
    print(json.dumps([*ended, statuses(start(config, folder, 3))]))


if __name__ == "__main__":
    end_again_and_again(sys.argv[1], Path(sys.argv[2]))
