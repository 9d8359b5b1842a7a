"""The machine: processor and clock as Linux tells them, precision auto, and how exactly a GPU computes."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment import run as experiment_run
from compare.experiment.compute_result import unfinished_result
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder
from compare.system import device
from compare.system.device import autocast, has_fast_bf16, pick_device, set_numerics, this_machine
from compare.system.log import Reporter

CPU = torch.device("cpu")


def pretend(flags: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor have these flags, and the machine no GPU."""
    lines = [
        f"processor\t: 0\nmodel name\t: Abacus\nflags\t\t: fpu {flags}\ncpu MHz\t\t: {mhz}\n"
        for mhz in (800, 3600.5, 2100)
    ]
    (folder / "cpuinfo").write_text("".join(lines))
    monkeypatch.setattr(device, "CPUINFO", folder / "cpuinfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_this_machine_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    assert this_machine(CPU).clock_mhz is None
    pretend("", tmp_path, monkeypatch)
    machine = this_machine(CPU)
    assert (machine.device, machine.clock_mhz) == ("Abacus", 2100.0)  # the median
    monkeypatch.setattr(device, "USERS_SETTINGS", {"MKL_CBWR": "AVX2", "OMP_NUM_THREADS": "1"})
    assert this_machine(CPU).environment == "MKL_CBWR=AVX2 OMP_NUM_THREADS=1"
    assert (machine.torch, machine.threads) == (torch.__version__, torch.get_num_threads())
    assert 1 <= machine.cores <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (
            "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n\ncpu family\t: 25\n",
            "AMD EPYC (family 25, model 17, stepping 1)",
        ),
        (
            "CPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 2\n",
            "aarch64 (implementer 0x41, part 0xd40, variant 0x1, revision 2)",
        ),
        ("", "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD"),
    ],
)
def test_processors_of_one_name_are_told_apart(
    cpuinfo: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On Linux with processors of x86 and Arm, and on Windows."""
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "" if cpuinfo else name)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert device.processor()[0] == name


def test_macos_tells_the_processors_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(device, "SYSCTL", ("echo", "Apple M1"))
    assert device.processor() == ("Apple M1", set())
    monkeypatch.setattr(device, "SYSCTL", (str(tmp_path / "none"),))
    assert device.processor()[0] == platform.processor() or platform.machine()


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == CPU
    with pytest.raises(ValueError, match=r"train\.device is cuda:1, but torch finds no GPU"):
        pick_device("cuda:1")


@pytest.mark.parametrize(
    ("flags", "fast"), [("avx512_bf16", True), ("amx_bf16 sse2", True), ("avx512f not_bf16", False)]
)
def test_auto_is_what_the_processor_is_good_at(
    flags: str, fast: bool, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pretend(flags, tmp_path, monkeypatch)
    assert has_fast_bf16(CPU) is fast
    for setting, precision in (("auto", "bf16" if fast else "fp32"), ("fp32", "fp32"), ("bf16", "bf16")):
        runs = resolve_models(load_experiment(tiny_toml, [f"train.precision={setting}"]))
        assert {(run.train.device, run.train.precision) for run in runs} == {("cpu", precision)}


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp32")])
def test_auto_is_what_the_gpu_is_good_at(
    capability: tuple[int, int], precision: str, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    run, *_ = resolve_models(load_experiment(tiny_toml, ["train.device=auto", "train.precision=auto"]))
    assert (run.train.device, run.train.precision) == ("cuda", precision)


def test_matrix_products_are_of_the_precision_told():
    one = torch.ones(2, 2)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(CPU, precision):
            assert (one @ one).dtype == dtype


def test_a_run_is_of_one_precision_and_never_of_auto(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In its config.toml and its result; a resumption that would choose otherwise is refused."""
    pretend("avx512_bf16", tmp_path, monkeypatch)
    monkeypatch.setattr(
        experiment_run, "run_model", lambda row, prepared, *_: unfinished_result(row, prepared)
    )
    experiment, folder = load_experiment(tiny_toml, ["train.precision=auto"]), tmp_path / "run"
    for _ in range(2):  # the second resumes the first
        results = run_experiment(experiment, folder, Reporter())
        assert [result.settings["train.precision"] for result in results] == ["bf16", "bf16"]
    assert {RunFolder.read(folder / result.run).run.train.precision for result in results} == {"bf16"}
    pretend("sse2", tmp_path, monkeypatch)
    with pytest.raises(ValueError, match='precision = "bf16" there, precision = "fp32" here'):
        run_experiment(experiment, folder, Reporter())


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.backends.cudnn.allow_tf32 = True  # torch's default; an earlier test may have changed it
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = before
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("cudnn")
def test_a_gpu_does_not_round_fp32_and_is_deterministic_on_request(monkeypatch: pytest.MonkeyPatch):
    set_numerics(CPU, deterministic=True)  # nothing to set
    assert torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    set_numerics(torch.device("cuda:1"))
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    set_numerics(torch.device("cuda"), deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "the user's")
    set_numerics(torch.device("cuda"), deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == "the user's"
    set_numerics(torch.device("cuda"))  # another run of the same process
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
