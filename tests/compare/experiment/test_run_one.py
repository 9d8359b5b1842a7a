"""Runs that cannot continue, which failures are retried or raised; device and version of a run."""

import shutil
from pathlib import Path

import pytest
import torch

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment import run as run_all
from compare.experiment.compute_result import training_figures
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder
from compare.system.device import device_name, pick_device
from compare.system.log import Reporter
from compare.system.plugins import source_version
from compare.training.metrics_log import read_metrics
from tests.kits.paths import ROOT
from tests.kits.runs import ROWS, files

# --- a run that cannot continue


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes\nat x.cpp"),
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
    ],
)
def test_a_row_without_room_is_left_to_be_tried_again(
    error: Exception, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tried = []

    def full(row: RunFolder, *_: object) -> None:
        tried.append(row.name)
        raise error

    monkeypatch.setattr(run_all, "run_one", full)
    for _ in "ab":
        results = run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter(quiet=True))
        assert [result.status for result in results] == ["unfinished", "unfinished"]
        assert all(str(result.reason).startswith("out of memory: ") for result in results)
        assert not any("\n" in str(result.reason) for result in results)
    assert tried == [*ROWS, *ROWS]


def test_any_other_fault_of_torch_is_not_hidden(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def faulty(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(run_all, "run_one", faulty)
    with pytest.raises(RuntimeError, match="mat1"):
        run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter(quiet=True))


def test_a_row_that_lost_its_config_is_not_wiped(finished: Path, tiny_toml: Path, tmp_path: Path):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    (copy / ROWS[0] / "config.toml").unlink()
    (copy / ROWS[0] / "result.json").unlink()
    before = files(copy)
    with pytest.raises(ValueError, match=r"has checkpoints but no config\.toml"):
        run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    assert files(copy) == before


def test_a_row_that_had_hardly_begun_begins_again(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "run" / ROWS[0]).mkdir(parents=True)
    (tmp_path / "run" / ROWS[0] / "vocabulary.json").write_text("half")
    monkeypatch.setattr(
        run_all, "run_one", lambda row, prepared, *_: run_all.unfinished_result(row, prepared)
    )
    run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter(quiet=True))
    assert (tmp_path / "run" / ROWS[0] / "vocabulary.json").read_text().startswith("{")
    assert (tmp_path / "run" / ROWS[0] / "config.toml").is_file()


def test_metrics_that_were_lost_are_a_clear_error(finished: Path):
    lines = read_metrics(finished / ROWS[0] / "metrics.jsonl")
    for damaged in ([], lines[:-1], lines[1:]):
        with pytest.raises(ValueError, match=r"metrics\.jsonl has lost lines: delete the run's checkpoints"):
            training_figures(damaged, None)  # type: ignore[arg-type]


# --- small things


def test_the_device_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [pick_device(name).type for name in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [pick_device(name).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    for name in ("cuda", "cuda:0", "cuda:1"):
        with pytest.raises(ValueError, match=rf"train\.device is {name}, but torch finds no GPU"):
            pick_device(name)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"train\.device is mps, but torch finds no GPU of Apple: use cpu"):
        pick_device("mps")
    assert device_name(torch.device("cpu"))


def test_a_device_may_be_one_of_several(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(pick_device(name)) for name in ("auto", "cuda", "cuda:0", "cuda:1")] == [
        "cuda",
        "cuda",
        "cuda:0",
        "cuda:1",
    ]
    with pytest.raises(ValueError, match=r"train\.device is cuda:2, but torch finds only 2 GPUs"):
        pick_device("cuda:2")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(pick_device("mps")) == "mps"


def test_the_version_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):

    for package in ("compare", "data", "seq2seq", "transformer"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(
        "compare.system.plugins.__file__", str(tmp_path / "compare" / "system" / "version.py")
    )
    versions = [source_version.__wrapped__()]
    assert versions == [source_version.__wrapped__()]
    (tmp_path / "data" / "notes.txt").write_text("no source")
    assert source_version.__wrapped__() == versions[0]
    (tmp_path / "transformer" / "model.py").write_text("")
    versions.append(source_version.__wrapped__())
    (tmp_path / "data" / "symbols.py").rename(tmp_path / "data" / "symbol.py")
    versions.append(source_version.__wrapped__())
    assert len(set(versions)) == 3


def test_a_broken_plot_does_not_keep_the_table_from_being_shown(
    finished: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device", "plots/x.png")

    monkeypatch.setattr("compare.report.views.write_views", broken)
    assert main(["run", str(tiny_toml), "--out", str(finished), "-q"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("| model")
    assert captured.err == "error: plots/x.png: No space left on device\n"
