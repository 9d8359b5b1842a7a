"""Diagnosis of a machine, also of one that lacks packages, cores, memory or GPUs."""

import builtins
import os
from importlib import metadata
from pathlib import Path

import pytest
import torch

from compare.cli import main
from compare.system import doctor, processor
from compare.system import measure as peak_flops
from compare.system import measure as timing
from compare.system.doctor import Diagnosis, diagnose, render_diagnoses

CPUINFO = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu sse2 avx512f{}\n\nprocessor\t: 1\n"


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


def test_missing_packages_are_told_from_missing_extras(monkeypatch: pytest.MonkeyPatch):
    wanted = ["nonesuch>=2,<3", "nvidia-none>=12; extra == 'energy'", "numpy>=1.26"]
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    diagnoses = by_topic(diagnose())
    assert diagnoses["nonesuch"].level == "missing"
    assert diagnoses["nonesuch"].text == "not installed: pip install 'nonesuch>=2,<3'"
    assert diagnoses["nvidia-none"].level == "note"
    assert "attnbench[energy]" in diagnoses["nvidia-none"].text
    assert (diagnoses["numpy"].level, diagnoses["numpy"].text) == ("ok", metadata.version("numpy"))


def test_versions_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch):
    wanted = ["numpy>=99", "pytest<1; extra == 'dev'"]
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    diagnoses = by_topic(diagnose())
    found = metadata.version("numpy")
    assert diagnoses["numpy"].text == f"{found} does not fit: pip install 'numpy>=99'"
    assert (diagnoses["numpy"].level, diagnoses["pytest"].level) == ("missing", "note")


def test_a_checkout_that_was_never_installed_is_no_crash(monkeypatch: pytest.MonkeyPatch):
    def fail(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", fail)
    assert by_topic(diagnose())["attnbench"].level == "missing"


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
    ("flag", "level", "word"),
    [(" avx512_bf16", "ok", "fast"), (" amx_bf16", "ok", "fast"), (" not_bf16", "note", "emulated")],
)
def test_bf16_is_fast_only_where_the_processor_has_it(
    flag: str, level: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(flag))
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    diagnoses = by_topic(diagnose())
    assert diagnoses["cpu"].text.startswith("Some CPU @ 2 GHz, ")
    assert diagnoses["cpu bf16"].level == level
    assert diagnoses["cpu bf16"].text.startswith(word)


def test_a_system_that_does_not_tell_its_flags_is_not_guessed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "nothing")
    diagnoses = by_topic(diagnose())
    assert "cpu bf16" not in diagnoses
    assert diagnoses["cpu"].text.endswith(" cores")


def test_too_many_threads_and_too_little_disk_are_noted(monkeypatch: pytest.MonkeyPatch):
    assert by_topic(diagnose())["threads"].level == "ok"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1_000)
    monkeypatch.setattr(doctor, "MIN_FREE_GIB", 1e9)
    diagnoses = by_topic(diagnose())
    assert diagnoses["threads"].level == "note"
    assert f"OMP_NUM_THREADS={len(os.sched_getaffinity(0))}" in diagnoses["threads"].text
    assert diagnoses["disk"].level == "note"


def test_the_peak_counts_two_operations_per_product(monkeypatch: pytest.MonkeyPatch):
    """With a clock that moves 0.25 s per reading, 2 * 1024 ** 3 operations take 0.25 s."""
    ticks = (number / 4 for number in range(1_000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    products = [finding for finding in diagnose(measure_peak=True) if "GFLOP" in finding.text]
    assert [finding.topic for finding in products] == ["cpu fp32 speed", "cpu bf16 speed"]
    assert products[0].text.startswith(f"{2 * 1024**3 / 0.25 / 1e9:.0f} GFLOP/s")


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


def test_the_report_has_one_aligned_line_a_finding():
    findings = [
        Diagnosis(topic="a", text="fine"),
        Diagnosis(topic="long", text="hm", level="note"),
        Diagnosis(topic="b", text="gone", level="missing"),
    ]
    assert render_diagnoses(findings).splitlines() == ["  a     fine", "- long  hm", "! b     gone"]


@pytest.mark.parametrize(("option", "measured"), [("--peak", True), ("--yardstick", True), ("--json", False)])
def test_the_command_measures_the_peak_only_on_request(
    option: str, measured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(peak_flops, "matmul_flops_per_s", lambda device, precision, seconds: 5e9)
    assert main(["doctor", option]) == 0
    assert capsys.readouterr().out.count("5 GFLOP/s, 1024 x 1024 matrix product") == 2 * measured
