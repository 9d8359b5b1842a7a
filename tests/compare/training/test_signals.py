"""Real signals to a real process: an experiment ended twice and resumed equals an unbroken one."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from compare.training.checkpoints import TrainerState
from compare.training.serialization import FINAL, STATE, load_state
from tests.kits.training import ROWS, metrics, same_weights

pytestmark = pytest.mark.slow


@dataclasses.dataclass(frozen=True)
class Broken:
    """An experiment that was ended by SIGTERM in its first row, by SIGKILL in its second, then finished."""

    folder: Path
    status: int
    stderr: str
    stopped: TrainerState
    lost: int
    """Updates written to metrics.jsonl after the state that survived SIGKILL."""


def start(tiny_toml: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "compare", "run", str(tiny_toml), "--out", str(folder), "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def signal_in_mid_epoch(process: subprocess.Popen[str], row: Path, signum: signal.Signals) -> None:
    """Send ``signum`` some updates after a saved state, long before the end of the first epoch."""
    path, until = row / "metrics.jsonl", time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n") >= 18):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signum)


@pytest.fixture(scope="module")
def broken(
    tiny_toml: Path, run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Broken:
    folder = tmp_path_factory.mktemp("broken") / "run"
    process = start(tiny_toml, folder)
    signal_in_mid_epoch(process, folder / ROWS[0], signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    state = load_state(folder / ROWS[0] / "checkpoints" / STATE)
    assert state is not None
    killed = start(tiny_toml, folder)
    signal_in_mid_epoch(killed, folder / ROWS[1], signal.SIGKILL)
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    survived = load_state(folder / ROWS[1] / "checkpoints" / STATE)
    assert survived is not None
    lost = metrics(folder / ROWS[1])[-1]["update"] - survived["progress"]["update"]
    assert not (folder / ROWS[1] / "result.json").exists()
    run_tiny(folder)
    return Broken(folder, process.returncode, stderr, TrainerState(**state["progress"]), lost)


def test_sigterm_is_one_line_and_status_143(broken: Broken):
    assert broken.status == 143
    assert broken.stderr.count("\n") == 1
    assert broken.stderr.startswith(
        f"stopped at update {broken.stopped.update} of 90; run the same command again"
    )
    assert broken.stopped.epoch == 1
    assert 18 <= broken.stopped.position == broken.stopped.update < 60


@pytest.mark.parametrize("row", ROWS)
def test_an_interrupted_row_ends_with_the_weights_of_an_unbroken_one(
    broken: Broken, finished: Path, row: str
):
    assert same_weights(broken.folder / row / "checkpoints" / FINAL, finished / row / "checkpoints" / FINAL)
    assert (broken.folder / row / "test.hyp").read_text() == (finished / row / "test.hyp").read_text()
    assert 0 <= broken.lost < 7


@pytest.mark.parametrize("row", ROWS)
def test_an_interrupted_row_has_every_line_once(broken: Broken, finished: Path, row: str):
    timeless = (
        "kind",
        "update",
        "epoch",
        "loss",
        "bleu",
        "grad_norm",
        "src_tokens",
        "tgt_tokens",
        "learning_rate",
    )
    lines, expected = (
        [{name: line.get(name) for name in timeless} for line in metrics(folder / row)]
        for folder in (broken.folder, finished)
    )
    assert lines == expected
    updates = [line["update"] for line in lines if line["kind"] == "train"]
    assert updates == list(range(1, 91))


def test_resumed_results_equal_those_of_an_unbroken_run(broken: Broken, finished: Path):
    for row in ROWS:
        one, other = (
            json.loads((folder / row / "result.json").read_text()) for folder in (broken.folder, finished)
        )
        for name in (
            "updates",
            "epochs",
            "tokens_seen",
            "best_update",
            "valid_loss",
            "bleu",
            "chrf",
            "batch_hash",
        ):
            assert one[name] == other[name], name
