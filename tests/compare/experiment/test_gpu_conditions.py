"""What the row of a GPU says about precision and reproducibility; that of a processor says nothing."""

import dataclasses
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models, settings_hash
from compare.experiment import compute_result as module
from compare.experiment.compute_result import UP_TO_ROUNDING, gpu_conditions
from compare.report.conditions import list_conditions
from compare.results.result import Result


def make_run(tiny_toml: Path, label: str, **train: object) -> Run:
    run = next(run for run in resolve_models(load_experiment(tiny_toml)) if run.label == label)
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **train))


def test_a_processor_has_none(tiny_toml: Path):
    assert gpu_conditions(make_run(tiny_toml, "luong", precision="bf16")) == {}


@pytest.mark.parametrize("has_bf16", [False, True])
@pytest.mark.parametrize(
    ("label", "precision"), [("luong", "bf16"), ("luong", "fp32"), ("transformer", "bf16")]
)
def test_the_row_says_where_recurrent_layers_are_not_in_its_precision(
    label: str, precision: str, has_bf16: bool, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "has_bf16_layers", lambda: has_bf16)
    run = make_run(tiny_toml, label, device="cuda:1", precision=precision, deterministic=True)
    differs = (label, precision, has_bf16) == ("luong", "bf16", False)
    assert gpu_conditions(run) == ({"recurrent_precision": "fp32"} if differs else {})


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_weights_of_a_gpu_repeat_up_to_rounding_unless_asked_for(device: str, tiny_toml: Path):
    run = make_run(tiny_toml, "transformer", device=device)
    assert gpu_conditions(run) == {"reproducible": UP_TO_ROUNDING}
    other = make_run(tiny_toml, "transformer", device=device, deterministic=True)
    assert gpu_conditions(other) == {}
    assert settings_hash(run) == settings_hash(other)


def test_the_record_and_the_conditions_name_them():
    plain = Result(label="a", preset="lstm", seed=1, status="done")
    gpu = dataclasses.replace(plain, recurrent_precision="fp32", reproducible=UP_TO_ROUNDING)
    assert "recurrent_precision" not in plain.to_json()
    assert "reproducible" not in plain.to_json()
    assert Result.from_json(gpu.to_json()) == gpu
    lines = dict(list_conditions([gpu.flat()]))
    assert lines["Precision"] == "recurrent layers fp32"
    assert lines["Training"] == f"weights reproducible {UP_TO_ROUNDING}"
