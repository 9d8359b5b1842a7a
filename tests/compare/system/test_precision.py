"""Precision auto: bf16 where the device multiplies it, resolved before anything is written or trained."""

from pathlib import Path

import pytest
import torch

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models
from compare.config.sections import TrainConfig
from compare.experiment import run as run_all
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder
from compare.system import processor
from compare.system.device import autocast, has_fast_bf16
from compare.system.log import Reporter

CPU = torch.device("cpu")


def pretend(flags: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor have these flags, and the machine no GPU."""
    (folder / "cpuinfo").write_text(f"model name\t: Abacus\nflags\t\t: fpu {flags}\n")
    monkeypatch.setattr(processor, "CPUINFO", folder / "cpuinfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("flags", "fast"), [("avx512_bf16", True), ("amx_bf16 sse2", True), ("avx512f", False)]
)
def test_auto_is_what_the_processor_is_good_at(
    flags: str, fast: bool, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pretend(flags, tmp_path, monkeypatch)
    assert has_fast_bf16(CPU) is fast
    for asked, found in (("auto", "bf16" if fast else "fp32"), ("fp32", "fp32"), ("bf16", "bf16")):
        runs = resolve_models(load_experiment(tiny_toml, [f"train.precision={asked}"]))
        assert {(run.train.device, run.train.precision) for run in runs} == {("cpu", found)}


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp32")])
def test_auto_is_what_the_gpu_is_good_at(
    capability: tuple[int, int], precision: str, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    overrides = ["train.device=auto", "train.precision=auto"]
    run, *_ = resolve_models(load_experiment(tiny_toml, overrides))
    assert (run.train.device, run.train.precision) == ("cuda", precision)


def test_auto_is_the_default():
    assert TrainConfig().precision == "auto"


def test_matrix_products_are_of_the_precision_told():
    one = torch.ones(2, 2)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(CPU, precision):
            assert (one @ one).dtype == dtype
    with pytest.raises(KeyError):
        autocast(CPU, "auto")  # never resolved


def test_a_run_is_of_one_precision_and_never_of_auto(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In its calibration, its config.toml and its result; one that would choose otherwise is refused."""
    pretend("avx512_bf16", tmp_path, monkeypatch)
    monkeypatch.setattr(
        run_all, "run_one", lambda row, prepared, *_: run_all.unfinished_result(row, prepared)
    )
    calibrated = []

    def calibrate(runs: list[Run], *_: object) -> dict[str, float]:
        calibrated.append(runs[0].train.precision)
        return {"luong": 1.0, "transformer": 1.0}

    monkeypatch.setattr(run_all, "calibrate", calibrate)
    overrides = ["train.precision=auto", "budget.match=time", "budget.amount=9"]
    experiment, folder = load_experiment(tiny_toml, overrides), tmp_path / "run"
    for _ in range(2):  # the second resumes the first
        results = run_experiment(experiment, folder, Reporter(quiet=True))
        assert [result.precision for result in results] == ["bf16", "bf16"]
    assert calibrated == ["bf16", "bf16"]
    for result in results:
        assert RunFolder.read(folder / result.run).run.train.precision == "bf16"
    pretend("sse2", tmp_path, monkeypatch)
    with pytest.raises(ValueError, match='precision = "bf16" there, precision = "fp32" here'):
        run_experiment(experiment, folder, Reporter(quiet=True))
