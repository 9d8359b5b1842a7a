"""Run folders of earlier versions: read by one table of old and new names, never by guessing."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

from compare.config import toml as schema
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.config.toml import RENAMED, SCHEMA, current_config, current_names, to_toml
from compare.experiment.run import run_experiment
from compare.models.presets import PRESETS
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.trained_model import load_model
from compare.system.log import Reporter
from compare.training.serialization import STATE, load_state, load_weights, save_state, save_weights
from tests.kits.runs import ROWS


def test_old_names_become_present_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        schema.RENAMED, "config", {"train.rate": "train.speed", "models.width": "models.size"}
    )
    monkeypatch.setitem(schema.RENAMED, "preset", {"gnmt": "gnmt-like"})
    old = {
        "schema": 1,
        "train": {"rate": 1, "seed": 2},
        "models": [{"preset": "gnmt", "width": 3}, {"label": "b"}],
    }
    assert current_config(old, "x") == {
        "train": {"speed": 1, "seed": 2},
        "models": [{"preset": "gnmt-like", "label": "gnmt", "size": 3}, {"label": "b"}],
    }
    assert current_names("trainer state", {"ledger": 1, "weights": 2}) == {"progress": 1, "weights": 2}


@pytest.mark.parametrize("old", RENAMED["preset"])
def test_a_renamed_preset_is_read_by_its_old_name(old: str, tmp_path: Path, finished: Path):
    """The label stays the name as written, since run folders are named after it."""
    path = tmp_path / "old.toml"
    path.write_text(f'[[models]]\npreset = "{old}"\n\n[[models]]\npreset = "{old}"\nlabel = "mine"\n')
    new = RENAMED["preset"][old]
    models = load_experiment(path).models
    assert [(row.preset, row.label) for row in models] == [(new, old), (new, "mine")]
    assert new in PRESETS
    assert old not in PRESETS
    record = json.loads((finished / ROWS[0] / "result.json").read_text())
    assert Result.from_json(json.dumps(record | {"preset": old})).preset == new


def test_the_name_of_an_old_model_that_a_new_one_has_taken_is_told_by_its_settings(
    tmp_path: Path, finished: Path
):
    """transformer-tiny had norms after the residual sum; tensor2tensor's, which it names now, has not."""
    path = tmp_path / "old.toml"
    beginning = '[[models]]\npreset = "transformer-tiny"\n'
    path.write_text(f'{beginning}d_model = 128\nnorm = "post"\n')  # a run folder names all settings
    (row,) = load_experiment(path).models
    assert (row.preset, row.label) == ("transformer-postnorm-2x128", "transformer-tiny")
    for today in ("", 'norm = "post"\n', 'd_model = 128\nnorm = "post"\nnorm_kind = "layer"\n'):
        path.write_text(beginning + today)
        assert load_experiment(path).models[0].preset == "transformer-tiny"
    record = json.loads((finished / ROWS[0] / "result.json").read_text()) | {"preset": "transformer-tiny"}
    assert Result.from_json(json.dumps(record)).preset == "transformer-tiny"
    del record["settings_hash"]
    assert Result.from_json(json.dumps(record)).preset == "transformer-postnorm-2x128"


@pytest.mark.parametrize("preset", ["min-gru", "min-lstm"])
def test_cells_without_norms_stay_so(tmp_path: Path, preset: str):
    """The presets have norms between layers now; what a run folder of before lists is read as it was."""
    path = tmp_path / "old.toml"
    beginning = f'[[models]]\npreset = "{preset}"\n'
    path.write_text(beginning)
    today = resolve_models(load_experiment(path), str(path))[0]
    table = {name: value for name, value in today.model_table().items() if name not in ("pre_norm", "preset")}
    path.write_text(beginning + to_toml({}, [table]).partition("[[models]]")[2])
    assert PRESETS[preset].architecture.pre_norm
    assert not resolve_models(load_experiment(path), str(path))[0].model_table()["pre_norm"]
    path.write_text(beginning + "hidden_size = 64\n")
    assert resolve_models(load_experiment(path), str(path))[0].model_table()["pre_norm"]


def test_no_present_name_is_an_old_one():
    for names in RENAMED.values():
        assert not names.keys() & set(names.values())


@pytest.mark.parametrize("number", [SCHEMA + 1, 0, "two", True])
def test_a_schema_of_a_later_version_is_refused(number: object, tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text(f"schema = {str(number).lower() if number is True else repr(number)}\n")
    with pytest.raises(ValueError, match=r"config\.toml: schema must be a whole number from 1 to"):
        load_experiment(path)


@pytest.fixture
def old_folder(finished: Path, tmp_path: Path) -> Path:
    """The finished experiment as version 1 wrote it: no schema, and the device left to the machine."""
    folder = Path(shutil.copytree(finished, tmp_path / "old"))
    for name in ROWS:
        path = folder / name / "config.toml"
        text = path.read_text().removeprefix(f"schema = {SCHEMA}\n\n")
        assert 'device = "cpu"' in text
        path.write_text(text.replace('device = "cpu"', 'device = "auto"'))
    return folder


def test_an_old_folder_is_the_same_experiment(
    old_folder: Path, finished: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ROWS:
        assert RunFolder.read(old_folder / name).run == RunFolder.read(finished / name).run
    results = run_experiment(load_experiment(tiny_toml), old_folder, Reporter(quiet=True))
    assert [result.status for result in results] == ["done", "done"]  # nothing is run again
    assert load_model(old_folder / ROWS[0]).translate(["dog"]) == load_model(finished / ROWS[0]).translate(
        ["dog"]
    )


def test_weights_and_states_are_read_by_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(schema.RENAMED, "parameter", {"table.weight": "embedding.weight"})
    save_weights(tmp_path / "w.safetensors", {"table.weight": torch.ones(2), "bias": torch.zeros(1)})
    assert load_weights(tmp_path / "w.safetensors").keys() == {"embedding.weight", "bias"}


def test_results_are_read_by_the_table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(schema.RENAMED, "result", {"bleu_score": "bleu"})
    text = '{"label": "a", "preset": "lstm", "seed": 1, "status": "done", "bleu_score": 12.5}'
    assert Result.from_json(text).bleu == 12.5


def test_a_run_stopped_by_version_1_goes_on(stopped: Path, tiny_toml: Path, finished: Path, tmp_path: Path):
    """The trainer state of schema 1 names the progress and the running metrics by their old keys."""
    old_names = {new: old for old, new in RENAMED["trainer state"].items()}
    states = list(stopped.glob(f"*/checkpoints/{STATE}"))
    assert states
    for path in states:
        state = load_state(path)
        assert state is not None
        save_state(path, {old_names.get(key, key): value for key, value in state.items()})
    results = run_experiment(load_experiment(tiny_toml), stopped, Reporter(quiet=True))
    assert [result.status for result in results] == ["done", "done"]
    for name in ROWS:
        one, other = (RunFolder.read(folder / name).weights.read_bytes() for folder in (stopped, finished))
        assert one == other


@pytest.fixture
def stopped(tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny experiment, interrupted after some updates of its first model."""
    from compare.system.signals import Interrupted
    from compare.training import trainer

    folder, after = tmp_path / "stopped", trainer.Trainer._after_update

    def stop(self: trainer.Trainer, request: object) -> None:
        after(self, request)  # type: ignore[arg-type]
        if self.state.update == 40:
            self.checkpoints.save(self.state)
            raise Interrupted(15, "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_after_update", stop)
        with pytest.raises(Interrupted):
            run_experiment(load_experiment(tiny_toml), folder, Reporter(quiet=True))
    return folder


def test_every_setting_of_a_run_is_in_its_config(finished: Path):
    run = RunFolder.read(finished / ROWS[0]).run
    for section in ("data", "train", "decode", "bench", "budget", "vocabulary"):
        for key, value in dataclasses.asdict(getattr(run, section)).items():
            assert run.settings()[f"{section}.{key}"] == value
