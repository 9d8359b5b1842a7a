"""Several processes and interrupted ones in one folder: nothing is trained twice, nothing is lost or left."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment import run as run_all
from compare.experiment.run import run_experiment
from compare.results.store import read_results
from compare.system.signals import lock_folder
from compare.training.serialization import CHECKPOINTS, FINAL, METRICS, STATE, load_state
from data.files import remove_leftovers, temporary_path
from tests.kits.paths import ROOT
from tests.kits.runs import ROWS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_plots")]


def start(toml: Path, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "compare", "run", str(toml), "--out", str(folder), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=toml.parent, env=environment
    )


def test_two_processes_share_the_rows_of_one_experiment(tiny_toml: Path, tmp_path: Path, finished: Path):
    """Today's worst case: the same command twice. Each row is trained once, to the same weights."""
    processes = [start(tiny_toml, tmp_path / "run") for _ in "ab"]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert all("Traceback" not in error for _, error in outputs)
    assert {process.returncode for process in processes} <= {0, 1}  # 1: a row was left to the other process
    assert "".join(error for _, error in outputs).count("timing 2 models in turn") == 1  # by who ended last
    timed = {result.timed_together for result in read_results(tmp_path / "run")}
    assert len(timed - {None}) == 1
    assert main(["run", str(tiny_toml), "--out", str(tmp_path / "run"), "-q"]) == 0
    assert {result.timed_together for result in read_results(tmp_path / "run")} == timed
    for name in ROWS:
        one, other = (folder / name / CHECKPOINTS / FINAL for folder in (tmp_path / "run", finished))
        assert one.read_bytes() == other.read_bytes()
        lines = [json.loads(line) for line in (tmp_path / "run" / name / METRICS).read_text().splitlines()]
        assert sum(line["updates"] for line in lines if line["kind"] == "train") == 90
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert not list((tmp_path / "run").rglob(".lock"))


def test_a_row_in_use_is_left_out_and_named(
    finished: Path,
    tiny_toml: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    (folder / ROWS[0] / "result.json").unlink()

    def locked(path: Path, *, wait: bool = False) -> object:
        if path == folder / ROWS[0]:
            raise run_all.Locked(f"{path} is in use by process 7 on 'elsewhere'")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr(run_all, "lock_folder", locked)
    results = run_experiment(load_experiment(tiny_toml), folder)
    assert [result.status for result in results] == ["unfinished", "done"]
    assert "left out" in caplog.text
    assert "process 7" in caplog.text


def test_the_status_is_that_of_the_rows_asked_for(finished: Path, tiny_toml: Path, tmp_path: Path):
    """Another seed of the same folder is not finished: no failure of a call that did not ask for it."""
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    registry = json.loads((folder / "experiment.json").read_text())
    registry["runs"].append("luong-seed7")
    (folder / "experiment.json").write_text(json.dumps(registry))
    assert [result.status for result in read_results(folder)] == ["done", "done", "unfinished"]
    assert main(["run", str(tiny_toml), "--out", str(folder), "-q"]) == 0


def test_a_row_that_cannot_be_finished_keeps_no_other_from_running(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    finish, begun = run_all.finish_run, []

    def broken(run: object, *arguments: object) -> None:
        begun.append(run.name)  # type: ignore[attr-defined]
        if len(begun) == 1:
            raise ValueError("this row is damaged")
        finish(run, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run_all, "finish_run", broken)
    with pytest.raises(ValueError, match="this row is damaged"):
        run_experiment(load_experiment(tiny_toml), tmp_path / "run")
    assert begun == list(ROWS)
    assert [result.status for result in read_results(tmp_path / "run")] == ["unfinished", "done"]


def test_views_that_a_killed_process_left_behind_are_rebuilt(finished: Path, tiny_toml: Path, tmp_path: Path):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    whole = (folder / "results.jsonl").read_text()
    (folder / "results.jsonl").write_text(whole.splitlines(keepends=True)[0])
    assert main(["check", str(folder), "-q"]) == 1  # check reports it, and writes nothing
    assert (folder / "results.jsonl").read_text() != whole
    assert main(["table", str(folder)]) == 0
    assert (folder / "results.jsonl").read_text() == whole
    (folder / "results.jsonl").write_text("\0\0")
    assert main(["run", str(tiny_toml), "--out", str(folder), "-q"]) == 0
    assert (folder / "results.jsonl").read_text() == whole


def test_a_log_that_lost_lines_is_found_at_once(finished: Path, tiny_toml: Path, tmp_path: Path):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    row = folder / ROWS[1]
    (row / "result.json").unlink()
    lines = (row / METRICS).read_text().splitlines(keepends=True)
    (row / METRICS).write_text("".join(lines[:-4]))
    state = load_state(row / CHECKPOINTS / STATE)
    assert state is not None
    with pytest.raises(ValueError, match=re.escape(f"{row / METRICS} covers ") + r"\d+ of the 90 updates"):
        run_experiment(load_experiment(tiny_toml), folder)


def test_temporary_files_of_dead_processes_are_removed(tmp_path: Path):
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    live = temporary_path(tmp_path / "a.json")
    names = [live.name.replace(f"-{os.getpid()}-", f"-{dead.stdout.strip()}-")]
    names += [names[0].replace(".a.json.", ".b.json."), live.name, ".a.json.hand-made.tmp"]
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, "a.json")
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(names[2:])


@pytest.mark.parametrize("words", ["prepared:", "decoding", "timing greedy, 1 of 200"])
def test_sigterm_outside_of_training_ends_with_one_line(words: str, tiny_toml: Path, tmp_path: Path):
    process = start(tiny_toml, tmp_path / "run", "--set", "bench.repeats=200")
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            break
    time.sleep(0.3 if words == "decoding" else 0)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 143
    last = error.splitlines()[-1]
    assert last.startswith("stopped")
    assert "Traceback" not in error
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert not list((tmp_path / "run").rglob(".lock"))
