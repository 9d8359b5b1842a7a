"""Processor and GPU: names, choice, precision, and how exactly they compute."""

import os
import platform
import re
import statistics
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from data.workers import available_cores

FAST_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Flags in /proc/cpuinfo of processors with bfloat16 products in hardware (x86 and Arm names)."""
FAST_BF16_GPU = (8, 0)
"""Lowest compute capability of GPUs with bfloat16 products in hardware."""
CPUINFO = Path("/proc/cpuinfo")
KIND_OF_PROCESSOR = {
    **{"cpu family": "family", "model": "model", "stepping": "stepping"},
    **{"CPU implementer": "implementer", "CPU part": "part"},  # Arm
    **{"CPU variant": "variant", "CPU revision": "revision"},
}
"""Lines of /proc/cpuinfo that tell processors of one name apart, and their names in ours."""
SYSCTL = ("sysctl", "-n", "machdep.cpu.brand_string")
"""Command that prints the processor's name on macOS."""
USERS_SETTINGS = {
    name: value
    for name, value in sorted(os.environ.items())
    if name.startswith(("OMP_", "KMP_", "GOMP_", "MKL_", "ONEDNN_", "DNNL_"))
}
"""Environment variables of the libraries under torch, as they were before ``tune_cpu`` added its own."""


def processor() -> tuple[str, set[str]]:
    """Return the processor's name, with family, model and stepping, and its feature flags.

    Windows tells no flags and gives the three numbers as the name; macOS tells a name alone.
    """
    facts = {name: values[0] for name, values in _cpuinfo().items()}
    name = facts.get("model name") or platform.processor() or platform.machine() or "cpu"
    if platform.system() == "Darwin":
        with suppress(OSError, subprocess.CalledProcessError):
            name = subprocess.run(SYSCTL, check=True, capture_output=True, text=True).stdout.strip()
    kind = [f"{word} {facts[line]}" for line, word in KIND_OF_PROCESSOR.items() if line in facts]
    flags = facts.get("flags") or facts.get("Features") or ""
    return f"{name} ({', '.join(kind)})" if kind else name, set(flags.split())


def clock_mhz() -> float | None:
    """Return the median of the clocks that Linux reports for the processors now; None elsewhere."""
    clocks = [float(clock) for clock in _cpuinfo().get("cpu MHz", ())]
    return statistics.median(clocks) if clocks else None


def _cpuinfo() -> dict[str, list[str]]:
    """Read the values in /proc/cpuinfo by name, one per processor; empty except on Linux."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    facts: dict[str, list[str]] = {}
    for name, value in re.findall(r"^([\w ]+?)\s*: *(\S.*)$", text, re.MULTILINE):
        facts.setdefault(name, []).append(value)
    return facts


# The device that a config names: choice, name, cores, and native bfloat16 arithmetic.


def pick_device(name: str) -> torch.device:
    """Return the device that ``[train] device`` names; auto means the first GPU of CUDA if there is one.

    Raises:
        ValueError: torch does not find the device.
    """
    device = (
        torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
    )
    if device.type == "cuda" and not torch.cuda.is_available():
        missing = "torch finds no GPU"
    elif device.type == "cuda" and (device.index or 0) >= max(1, torch.cuda.device_count()):
        missing = f"torch finds only {torch.cuda.device_count()} GPUs, counted from cuda:0"
    else:
        return device
    raise ValueError(f"train.device is {name}, but {missing}: use cpu or auto (see `attnbench doctor`)")


def device_name(device: torch.device) -> str:
    """Return the name of the GPU or the processor; that of a GPU of another machine is not known here."""
    if device.type == "cuda":
        is_here = (device.index or 0) < torch.cuda.device_count()
        return torch.cuda.get_device_name(device) if is_here else str(device)
    return processor()[0]


def has_fast_bf16(device: torch.device) -> bool:
    """Test whether the hardware computes in bf16; elsewhere it is emulated, which is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FAST_BF16_GPU
    return device.type == "cpu" and bool(FAST_BF16 & processor()[1])


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all work queued there; a processor queues none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Machine that figures were measured on.


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Hardware and libraries that speeds depend on; the names are fields of ``Result``."""

    device: str
    """Name of the processor or GPU."""
    torch: str
    """Version of torch."""
    threads: int
    """CPU threads of torch."""
    cores: int
    """Logical processors that this process may use."""
    clock_mhz: float | None
    """Median clock of the processors now, or of a GPU in a timing; None where the system does not tell."""
    throttling: str | None = None
    """Why a GPU lowered its clock in a timing."""
    fp32_gflops: float | None = None
    """Billion operations per second of a large product; None where they were not measured."""
    bf16_gflops: float | None = None
    """The same in bf16."""
    environment: str | None = None
    """``USERS_SETTINGS``; None if there are none."""

    def __str__(self) -> str:
        """Name what decides rounding and speed: "AMD EPYC, torch 2.13.0, threads: 2"."""
        return f"{self.device}, torch {self.torch}, threads: {self.threads}"


def this_machine(device: torch.device) -> Machine:
    """Describe this machine, and this process's use of it."""
    return Machine(
        device=device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        cores=available_cores(),
        clock_mhz=clock_mhz(),
        environment=" ".join(f"{name}={value}" for name, value in USERS_SETTINGS.items()) or None,
    )


# Precisions: fp32, and bf16, which trains by autocast over fp32 weights and decodes with bf16 weights.


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Data type of matrix products by its name in configs and results; auto has been replaced by one of them."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context manager in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


# How exactly a GPU computes: fp32 without rounding of inputs, and the same bits each time if asked for.


def set_numerics(device: torch.device, *, deterministic: bool = False) -> None:
    """Set how torch computes on ``device``, before the first work there; nothing to set for a processor.

    Products of fp32 stay fp32: torch would use TensorFloat-32, which rounds inputs to 10 bits, in recurrent
    layers alone, so that some models of a comparison would be less exact.

    Args:
        device: where the models will compute.
        deterministic: choose algorithms that give the same bits each time, which are slower; an operation
            that has none raises a RuntimeError.
    """
    if device.type == "cpu":
        return
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if deterministic:
        # Read at the first product of the process. Of the two values that torch accepts, this is the one
        # that cuDNN's recurrent layers need too.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = deterministic


def tune_cpu(*, batch_tokens: int | None = None) -> None:
    """Make training and decoding in this process as fast as the CPU allows; the precision stays the same.

    Args:
        batch_tokens: tokens per training batch; None for a process that only decodes.
    """


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from compare.fast import tune_cpu as tune_cpu
