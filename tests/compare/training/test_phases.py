"""Waits for a GPU before times and energy change their phase, and signals that arrive meanwhile."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from compare.system.measure import EnergyMeter
from compare.system.signals import Interrupted
from compare.training.checkpoints import Checkpoints, RunningMetrics, TrainerState
from compare.training.serialization import STATE, load_state
from compare.training.trainer import Trainer
from data.batches import BatchStream
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
    watch_method(Checkpoints, "save")
    watch_method(Checkpoints, "save_snapshot")
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
        ["synchronize", "take", "save", "take"],
        ["synchronize", "take"],
        ["synchronize", "take", "validate", "save_snapshot", "save", "take"],
    ]


def test_queued_work_is_finished_before_weights_to_average_are_copied(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = {"max_updates": 4, "valid_every": 4, "log_every": 4, "average": 2, "average_every": 2}
    run = trainer(stream, tmp_path, bleus(1), **settings)
    events = watch(run, monkeypatch)
    run.run()
    update = " ".join(events).split("_update")[2].split()
    assert update == ["synchronize", "take", "save_snapshot", "save", "take"]


def test_a_signal_while_saving_waits_for_the_next_update_and_its_save(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the message would name an update that the saved state does not have."""
    run = trainer(stream, tmp_path, bleus(1), checkpoint_every=3, valid_every=10, log_every=10)
    save = run.checkpoints.save

    def save_and_signal(state: TrainerState) -> None:
        save(state)
        if state.update == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(run.checkpoints, "save", save_and_signal)
    with pytest.raises(Interrupted, match="stopped at update 4 of 10"):
        run.run()
    state = load_state(run.checkpoints.folder / STATE)
    assert state is not None
    assert state["progress"]["update"] == 4
