"""Diagnosis of a machine, also of one that lacks packages, cores, memory or GPUs."""

import builtins
import json
from importlib import metadata

import pytest
import torch

from compare.cli import main
from compare.system import doctor
from compare.system.doctor import Diagnosis, diagnose
from data.workers import available_cores


def by_topic() -> dict[str, Diagnosis]:
    findings = diagnose()
    assert len({finding.topic for finding in findings}) == len(findings)
    return {finding.topic: finding for finding in findings}


def test_this_machine_is_described(capsys: pytest.CaptureFixture[str]):
    diagnoses = by_topic()
    assert {"python", "cpu", "threads", "disk", "sacrebleu", "torchtext"} <= diagnoses.keys()
    assert diagnoses["torch"].text == metadata.version("torch")
    assert diagnoses["threads"].text.split(",")[0] == str(torch.get_num_threads())
    assert f"{available_cores()} cores" in diagnoses["cpu"].text
    assert ("gpu" in diagnoses) == (not torch.cuda.is_available())
    assert main(["doctor", "--json"]) == 0
    assert {"topic": "torch", "text": metadata.version("torch"), "level": "ok"} in json.loads(
        capsys.readouterr().out
    )


def test_packages_that_are_missing_or_do_not_fit_are_told_from_extras(monkeypatch: pytest.MonkeyPatch):
    wanted = ["nonesuch>=2,<3", "nvidia-none>=12; extra == 'energy'", "numpy>=99", "pytest<1; extra == 'dev'"]
    monkeypatch.setattr(metadata, "requires", lambda _: [*wanted, "typer"])
    by_name = {topic: (item.level, item.text) for topic, item in by_topic().items()}
    assert by_name["nonesuch"] == ("missing", "not installed; pip install 'nonesuch>=2,<3'")
    assert by_name["nvidia-none"] == ("note", "not installed; optional: pip install 'attnbench[energy]'")
    assert by_name["numpy"] == (
        "missing",
        f"{metadata.version('numpy')} does not fit: pip install 'numpy>=99'",
    )
    assert by_name["pytest"][0] == "note"
    assert by_name["typer"] == ("ok", metadata.version("typer"))
    assert main(["doctor"]) == 1


def test_a_torch_that_does_not_load_is_no_crash(monkeypatch: pytest.MonkeyPatch):
    load = builtins.__import__

    def fail(name: str, *rest: object) -> object:
        if name == "torch":
            raise OSError("libcudart.so.13: cannot open shared object file")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    (broken,) = [finding for finding in diagnose() if finding.level == "missing"]
    assert broken.topic == "torch loads"
    assert "libcudart" in broken.text


def test_a_small_machine_and_its_gpus(monkeypatch: pytest.MonkeyPatch):
    class Device:
        name, total_memory, minor = "H100", 80 * 2**30, 0

        def __init__(self, index: int) -> None:
            self.major = (9, 7)[index]

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1_000)
    monkeypatch.setattr(doctor, "MIN_FREE_GIB", 1e9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Device)
    diagnoses = by_topic()
    assert diagnoses["threads"].level == diagnoses["disk"].level == "note"
    assert f"OMP_NUM_THREADS={available_cores()}" in diagnoses["threads"].text
    assert diagnoses["cuda:0"].text == "H100, 80.0 GiB, compute capability 9.0, bf16 fast"
    assert diagnoses["cuda:1"].text.endswith("7.0, bf16 emulated")
    assert "gpu" not in diagnoses
