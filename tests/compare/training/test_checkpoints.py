"""Checkpoints alone: the order in which files are written, and states that are not restored."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.training import checkpoints as module
from compare.training.checkpoints import TrainerState
from compare.training.metrics_log import MetricsLog
from data.batches import BatchStream
from tests.kits.training import bleus, make_stream, trainer

stream = pytest.fixture(scope="module")(make_stream)


def test_no_file_is_written_before_one_that_it_relies_on(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Weights before their line, lines before the state; a snapshot goes once no saved state names it."""
    events: list[str] = []

    def watch(owner: Any, name: str, event: Callable[..., str]) -> None:
        call = getattr(owner, name)

        def recorded(*arguments: Any, **settings: Any) -> Any:
            result = call(*arguments, **settings)
            events.append(event(*arguments))
            return result

        monkeypatch.setattr(owner, name, recorded)

    watch(module, "save_weights", lambda path, weights: path.name)
    watch(module, "save_state", lambda path, state: path.name)
    watch(MetricsLog, "append", lambda log, line: f"{line['kind']} {line['update']}")
    watch(MetricsLog, "sync", lambda log: "sync")
    watch(Path, "unlink", lambda path: f"delete {path.name}")
    scores = bleus(2, 1, 3)
    trainer(stream, tmp_path, scores, max_updates=3, valid_every=1, average=2).run()
    snapshots = [f"update-000000{update}.safetensors" for update in (1, 2, 3)]
    names = (*snapshots, "trainer.pt", "final.safetensors")
    known = [event for event in events if not event.startswith("delete") or event.split()[1] in names]
    assert known == [
        *("train 1", snapshots[0], "valid 1", "sync", "trainer.pt"),
        *("train 2", snapshots[1], "valid 2", "sync", "trainer.pt"),
        *("train 3", snapshots[2], "valid 3", "sync", "trainer.pt", f"delete {snapshots[0]}"),
        *("average 3", "final.safetensors", "final 3"),
    ]


def test_a_run_without_a_state_starts_a_new_log(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1))
    run.metrics.append({"kind": "train", "update": 1})
    assert run.checkpoints.restore() is None
    run.checkpoints.rewind_log([0, 0])
    assert not run.metrics.path.exists()


def test_processes_that_restore_different_states_are_refused(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1))
    run.metrics.append({"kind": "train", "update": 1})
    message = f"{run.checkpoints.folder}: not all processes see the same folder and files"
    with pytest.raises(OSError, match=re.escape(message)):
        run.checkpoints.rewind_log([4, 0])
    assert run.metrics.path.exists()


def test_a_restored_state_equals_the_saved_one(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1), max_updates=4)
    run.run()
    run.checkpoints.save(run.state)
    drawn = torch.rand(3)
    other = trainer(stream, tmp_path, bleus(1), max_updates=4)
    state = other.checkpoints.restore()
    assert isinstance(state, TrainerState)
    assert torch.equal(torch.rand(3), drawn)
    for counted in (state, run.state):  # the time of saving is counted once the state has been written
        counted.seconds = {}
    assert state == run.state
    for restored, saved in zip(other.model.parameters(), run.model.parameters(), strict=True):
        assert torch.equal(restored, saved)
    assert str(other.optimizer.state_dict()) == str(run.optimizer.state_dict())


@pytest.mark.parametrize(("device", "refused"), [("mps", True), ("cpu", False)])
def test_a_run_continues_on_its_own_kind_of_gpu(
    device: str, refused: bool, stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Processors may differ, as before; a state of an earlier version does not tell its device."""
    checkpoints = trainer(stream, tmp_path, bleus(1)).checkpoints
    monkeypatch.setattr(checkpoints, "device", torch.device(device))
    monkeypatch.setattr(module, "device_name", lambda device: "Abacus 2")
    checkpoints._refuse_other_gpu({"device": "Abacus 2"})
    checkpoints._refuse_other_gpu({})
    message = r"trainer\.pt is of 'Abacus 1', and this is Abacus 2: continue on the same GPU"
    with pytest.raises(ValueError, match=message) if refused else nullcontext():
        checkpoints._refuse_other_gpu({"device": "Abacus 1"})
