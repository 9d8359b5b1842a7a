"""One experiment in several processes: ended in every way, resumed by another number, and under torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.run import run_experiment
from compare.results.store import read_result
from tests.kits.cli import Refusal
from tests.kits.paths import ROOT
from tests.kits.training import metrics

pytestmark = pytest.mark.slow
EQUAL = ("updates", "epochs", "tokens_seen", "best_update", "bleu", "chrf", "batch_hash", "settings_hash")
"""Figures that do not depend on the number of processes; those of the loss are equal but for rounding."""


@pytest.fixture(scope="module")
def config(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first model of the tiny experiment, for a shorter time and without dropout."""
    text = tiny_toml.read_text().replace("max_updates = 90", "max_updates = 40")
    text = text.replace("valid_every = 40", "valid_every = 20").replace("dropout = 0.3", "dropout = 0.0")
    path = tmp_path_factory.mktemp("short") / "tiny.toml"
    path.write_text("[[models]]".join(text.split("[[models]]")[:2]))
    return path


@pytest.fixture(scope="module")
def alone(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    run_experiment(load_experiment(config), folder)
    return folder


def assert_equal_but_for_speed(folder: Path, alone: Path, processes: int) -> None:
    """Compare the run of several processes with that of one."""
    found, expected = (read_result(each / "luong-seed1") for each in (folder, alone))
    for name in EQUAL:
        assert getattr(found, name) == getattr(expected, name), name
    assert found.valid_loss == pytest.approx(expected.valid_loss, rel=1e-4)
    assert (folder / "luong-seed1/test.hyp").read_text() == (alone / "luong-seed1/test.hyp").read_text()
    assert expected.processes is None
    assert expected.together_tokens_per_s is None
    assert (found.processes, found.devices, found.nodes) == (processes, 1, 1)
    assert found.together_tokens_per_s == found.together_tokens_per_s_per_device
    updates = [line["update"] for line in metrics(folder / "luong-seed1") if line["kind"] == "train"]
    assert updates == list(range(1, 41))
    assert not list(folder.rglob("*.tmp"))
    assert not list(folder.rglob(".lock"))
    assert not check_experiment(folder).differences


class Ended(NamedTuple):
    """What ``tests.kits.run_together`` leaves."""

    folder: Path
    statuses: list[list[int]]
    stderr: list[str]


@pytest.fixture(scope="module")
def ended(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("ended") / "run"
    command = [sys.executable, "-m", "tests.kits.run_together", str(config), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return Ended(folder, json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines())


def test_all_processes_end_together_with_one_line(ended: Ended):
    no_memory, killed, stopped, stopped_alone, finished = ended.statuses
    assert no_memory == [1, 0]
    assert killed == [2, -signal.SIGKILL]
    assert stopped == [143, 0]
    assert stopped_alone == [143]
    assert finished == [0, 0, 0, 0]
    lines = [line for line in ended.stderr if "out of memory" not in line]
    assert len(lines) == 3, ended.stderr
    assert lines[0].startswith("error: another process of this job has ended or cannot be reached")
    assert all(line.startswith("stopped at update") for line in lines[1:])


def test_a_process_without_memory_makes_all_leave_the_run(ended: Ended):
    record = json.loads((ended.folder.parent / "failed.json").read_text())
    assert record["status"] == "unfinished"
    assert record["reason"] == "out of memory: no memory left in process 1"


def test_two_then_one_then_four_processes_give_the_row_of_one(ended: Ended, alone: Path):
    log = metrics(ended.folder / "luong-seed1")
    counts = [line.get("processes", 1) for line in log if line["kind"] == "train"]
    assert sorted(set(counts), key=counts.index) == [2, 1, 4]
    assert_equal_but_for_speed(ended.folder, alone, processes=4)


def workers(agent: int) -> Iterator[tuple[int, dict[str, str]]]:
    """The processes that torchrun has started, with their environment."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == agent:
                pairs = (item.partition("=") for item in (path / "environ").read_text().split("\0"))
                yield int(path.name), {name: value for name, _, value in pairs}
        except OSError:
            continue  # ended meanwhile


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs the environment of other processes"
)
def test_torchrun_restarts_a_killed_process(config: Path, alone: Path, tmp_path: Path):
    folder, environment = tmp_path / "run", {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--max-restarts", "1", "-m", "compare", "run", str(config), "--out", str(folder)]
    with (tmp_path / "stderr").open("w") as stderr:
        agent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
        log, deadline = folder / "luong-seed1" / "metrics.jsonl", time.monotonic() + 300
        while not (log.exists() and log.read_text().count("\n") >= 10):
            assert agent.poll() is None, (tmp_path / "stderr").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        by_rank = {variables.get("RANK"): pid for pid, variables in workers(agent.pid)}
        os.kill(by_rank["1"], signal.SIGKILL)
        output, _ = agent.communicate(timeout=600)
    messages = (tmp_path / "stderr").read_text()
    assert agent.returncode == 0, messages
    assert messages.count("luong: 2 processes on 1 devices of 1 hosts train together") == 2
    assert output.count("| luong ") == 1
    assert_equal_but_for_speed(folder, alone, processes=2)


def set_environment(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


COMPLETE = {
    "RANK": 0,
    "WORLD_SIZE": 2,
    "LOCAL_RANK": 0,
    "LOCAL_WORLD_SIZE": 2,
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": 1,
}


def test_one_process_of_torchrun_is_one_process(config: Path, monkeypatch: pytest.MonkeyPatch):
    from compare.system.distributed import SINGLE, join_processes

    set_environment(monkeypatch, **COMPLETE | {"WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1})
    with join_processes() as processes:
        assert processes is SINGLE


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    import torch

    from compare.system.distributed import pick_own_device

    set_environment(monkeypatch, **COMPLETE)
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
    set_environment(monkeypatch, **COMPLETE, TORCHELASTIC_RUN_ID="x")
    assert refusal(command, config).startswith(f"{command} works in one process: start it without torchrun")


def test_an_error_is_printed_by_process_0_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    set_environment(monkeypatch, **COMPLETE | {"RANK": 1, "LOCAL_RANK": 1})
    assert main(["run", str(tmp_path / "missing.toml")]) == 2
    assert capsys.readouterr().err == ""
