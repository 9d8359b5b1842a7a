"""``run --jobs``: the rows of a serial run, a row that fails, a killed child, a signal to the parent."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from compare.cli import main
from compare.results.store import read_results
from compare.training.serialization import CHECKPOINTS, STATE
from tests.kits.cli import files
from tests.kits.runs import ROWS
from tests.reliability.contents import differences, leftovers, read_contents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("without_plots"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="sends signals"),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The last bits of weights may depend on the number of threads, and that on the cores of this machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def at_state(folder: Path, act: Callable[[], None]) -> threading.Thread:
    """Calls a function once the run in ``folder`` has saved a state."""

    def wait() -> None:
        end = time.monotonic() + 120
        while not (folder / CHECKPOINTS / STATE).exists() and time.monotonic() < end:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def child_of(folder: Path) -> int:
    return int(json.loads((folder / ".lock").read_bytes())["pid"])


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
    assert captured.out.splitlines()[2].startswith("| wild ")
    assert "failed: loss or gradient became NaN or infinite" in captured.out
    assert "wild-seed1: failed: loss or gradient" in captured.err
    assert "luong-seed1 12/12" in captured.err
    assert captured.err.index("transformer-seed1: done") < captured.err.index("timing 2 models in turn")
    found, expected = read_contents(tmp_path / "jobs"), read_contents(tmp_path / "serial")
    # A row that failed was not timed, so its cores are those that its own process had.
    of_the_failed = {"results.jsonl", "table.json", "wild-seed1/result.json"}
    assert set(differences(found, expected)) <= of_the_failed
    for name in ("luong-seed1/result.json", "transformer-seed1/result.json"):
        assert found[name] == expected[name]
    assert leftovers(tmp_path / "jobs") == []

    before = files(tmp_path / "jobs" / "luong-seed1")
    assert main(["run", str(config), "--out", str(tmp_path / "jobs"), "--jobs", "2"]) == 1
    assert "all 3 runs have ended" in capsys.readouterr().err
    assert files(tmp_path / "jobs" / "luong-seed1") == before


def test_a_killed_child_is_named_and_continued_by_the_same_command(
    tiny_toml: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "jobs"
    thread = at_state(folder / ROWS[0], lambda: os.kill(child_of(folder / ROWS[0]), signal.SIGKILL))
    assert main(["run", str(tiny_toml), "--out", str(folder), "--jobs", "2"]) == 1
    thread.join()
    message = "luong-seed1: its process was killed by SIGKILL; run the same command again to continue it\n"
    captured = capsys.readouterr()
    assert message in captured.err
    assert "timing" not in captured.err
    assert [result.status for result in read_results(folder)] == ["unfinished", "done"]
    assert main(["run", str(tiny_toml), "--out", str(folder), "--jobs", "2", "-q"]) == 0
    for row in ROWS:
        assert differences(read_contents(folder / row), read_contents(finished / row)) == []
    assert leftovers(folder) == []


def test_a_signal_to_the_parent_saves_all_runs(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "jobs"
    thread = at_state(folder / ROWS[1], lambda: os.kill(os.getpid(), signal.SIGTERM))
    endless = ["--set", "train.max_updates=100000", "--set", "train.checkpoint_every=3"]
    assert main(["run", str(tiny_toml), "--out", str(folder), "--jobs", "2", "-q", *endless]) == 143
    thread.join()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "transformer-seed1 stopped at update" in captured.err
    assert captured.err.endswith("; run the same command again to continue\n")
    assert leftovers(folder) == []
