"""Diagnosis of a machine, also of one that lacks packages, cores, memory or GPUs."""

import builtins
import os
from importlib import metadata
from pathlib import Path

import pytest
import torch

from compare.cli import main
from compare.system import device, doctor, measure
from compare.system.doctor import Diagnosis, diagnose


def by_topic(findings: list[Diagnosis]) -> dict[str, Diagnosis]:
    assert len({finding.topic for finding in findings}) == len(findings)
    return {finding.topic: finding for finding in findings}


def test_this_machine_is_described():
    diagnoses = by_topic(diagnose())
    assert {"python", "cpu", "threads", "disk", "sacrebleu", "torchtext"} <= diagnoses.keys()
    assert diagnoses["torch"].text == metadata.version("torch")
    assert diagnoses["threads"].text.split(",")[0] == str(torch.get_num_threads())
    assert f"{len(os.sched_getaffinity(0))} cores" in diagnoses["cpu"].text
    assert ("gpu" in diagnoses) == (not torch.cuda.is_available())
    assert not any("GFLOP" in finding.text for finding in diagnoses.values())


def test_packages_that_are_missing_or_do_not_fit_are_told_from_extras(monkeypatch: pytest.MonkeyPatch):
    wanted = ["nonesuch>=2,<3", "nvidia-none>=12; extra == 'energy'", "numpy>=99", "pytest<1; extra == 'dev'"]
    monkeypatch.setattr(metadata, "requires", lambda _: [*wanted, "typer"])
    found = {topic: (item.level, item.text) for topic, item in by_topic(diagnose()).items()}
    assert found["nonesuch"] == ("missing", "not installed: pip install 'nonesuch>=2,<3'")
    assert found["nvidia-none"] == ("note", "not installed; optional: pip install 'attnbench[energy]'")
    assert found["numpy"] == (
        "missing",
        f"{metadata.version('numpy')} does not fit: pip install 'numpy>=99'",
    )
    assert found["pytest"][0] == "note"
    assert found["typer"] == ("ok", metadata.version("typer"))


def test_a_torch_that_does_not_load_is_no_crash(monkeypatch: pytest.MonkeyPatch):
    load = builtins.__import__

    def fail(name: str, *rest: object) -> object:
        if name == "torch":
            raise OSError("libcudart.so.13: cannot open shared object file")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    broken = [finding for finding in diagnose() if finding.level == "missing"]
    assert [finding.topic for finding in broken] == ["torch loads"]
    assert "libcudart" in broken[0].text


@pytest.mark.parametrize(
    ("flags", "level", "text"),
    [("flags\t: fpu avx512_bf16", "ok", "fast"), ("flags\t: fpu not_bf16", "note", "emulated"), ("", "", "")],
)
def test_bf16_is_fast_only_where_the_processor_has_it(
    flags: str, level: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "cpuinfo").write_text(f"model name\t: Some CPU @ 2 GHz\n{flags}\n")
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    diagnoses = by_topic(diagnose())
    assert diagnoses["cpu"].text.startswith("Some CPU @ 2 GHz, ")
    found = diagnoses.get("cpu bf16", Diagnosis(topic="", text="", level="ok"))
    assert found.text.startswith(text)
    assert found.level == (level or "ok")


def test_too_many_threads_and_too_little_disk_are_noted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1_000)
    monkeypatch.setattr(doctor, "MIN_FREE_GIB", 1e9)
    diagnoses = by_topic(diagnose())
    assert diagnoses["threads"].level == diagnoses["disk"].level == "note"
    assert f"OMP_NUM_THREADS={len(os.sched_getaffinity(0))}" in diagnoses["threads"].text


def test_gpus_are_described(monkeypatch: pytest.MonkeyPatch):
    class Device:
        name, total_memory, minor = "H100", 80 * 2**30, 0

        def __init__(self, index: int) -> None:
            self.major = (9, 7)[index]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Device)
    diagnoses = by_topic(diagnose())
    assert diagnoses["cuda:0"].text == "H100, 80.0 GiB, compute capability 9.0, bf16 fast"
    assert diagnoses["cuda:1"].text.endswith("7.0, bf16 emulated")
    assert "gpu" not in diagnoses


@pytest.mark.parametrize(("option", "measured"), [("--peak", True), ("--json", False)])
def test_the_command_measures_the_peak_only_on_request(
    option: str, measured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(measure, "matmul_flops_per_s", lambda device, precision, seconds: 5e9)
    assert main(["doctor", option]) == 0
    assert capsys.readouterr().out.count("5 GFLOP/s, 1024 x 1024 matrix product") == 2 * measured
