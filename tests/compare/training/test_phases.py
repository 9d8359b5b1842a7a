"""What a GPU needs of the trainer: waits before times change their phase, and one kind of GPU per run."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.system.energy import EnergyMeter
from compare.system.signals import Interrupted
from compare.training.file_names import STATE
from compare.training.serialization import load_state
from compare.training.trainer import Trainer
from compare.training.trainer_state import RunningMetrics
from data.loader import BatchStream
from tests.kits.training import bleus, make_stream, trainer

stream = pytest.fixture(scope="module")(make_stream)


def watch(run: Trainer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the order in which a trainer waits, reads the energy, validates and saves."""
    events: list[str] = []

    def watch_method(owner: type, name: str) -> None:
        call = getattr(owner, name)

        def recorded(*arguments: Any) -> Any:
            events.append(name)
            return call(*arguments)

        monkeypatch.setattr(owner, name, recorded)

    validate = run.validate
    monkeypatch.setattr(run, "validate", lambda: events.append("validate") or validate())
    watch_method(RunningMetrics, "synchronize")
    watch_method(EnergyMeter, "take")
    watch_method(Trainer, "_save")
    watch_method(Trainer, "_update")
    return events


def test_queued_work_is_finished_before_times_and_energy_go_to_another_phase(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Update 2 is saved without a log line, update 3 is logged only, update 4 is validated."""
    settings = {"max_updates": 4, "valid_every": 4, "log_every": 3, "checkpoint_every": 2}
    run = trainer(stream, tmp_path, bleus(1), **settings)
    events = watch(run, monkeypatch)
    run.run()
    updates = " ".join(events).split("_update")
    assert [update.split() for update in updates] == [
        ["take"],
        [],
        ["synchronize", "take", "_save", "take"],
        ["synchronize", "take"],
        ["synchronize", "take", "validate", "_save", "take"],
    ]


def test_a_signal_while_saving_waits_for_the_next_update_and_its_save(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the message would name an update that the saved state does not have."""
    run = trainer(stream, tmp_path, bleus(1), checkpoint_every=3, valid_every=10, log_every=10)
    save = run._save

    def save_and_signal() -> None:
        save()
        if run.state.update == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(run, "_save", save_and_signal)
    with pytest.raises(Interrupted, match="stopped at update 4 of 10"):
        run.run()
    state = load_state(run.checkpoints / STATE)
    assert state is not None
    assert state["progress"]["update"] == 4


@pytest.mark.parametrize(("device", "refused"), [("mps", True), ("cpu", False)])
def test_a_run_continues_on_its_own_kind_of_gpu(
    device: str, refused: bool, stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Processors may differ, as before; a state of an earlier version does not tell its device."""
    run = trainer(stream, tmp_path, bleus(1))
    monkeypatch.setattr(run, "device", torch.device(device))
    monkeypatch.setattr("compare.training.trainer.device_name", lambda device: "Abacus 2")
    run._refuse_other_gpu({"device": "Abacus 2"})
    run._refuse_other_gpu({})
    message = r"trainer\.pt is of 'Abacus 1', and this is Abacus 2: continue on the same GPU"
    with pytest.raises(ValueError, match=message) if refused else nullcontext():
        run._refuse_other_gpu({"device": "Abacus 1"})
