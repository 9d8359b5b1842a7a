"""The device that a config names: choice, name, cores, and native bfloat16 arithmetic."""

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FAST_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Flags in /proc/cpuinfo of processors with bfloat16 products in hardware (x86 and Arm names)."""
FAST_BF16_GPU = (8, 0)
"""Lowest compute capability of GPUs with bfloat16 products in hardware."""
CPUINFO = Path("/proc/cpuinfo")


def pick_device(name: str) -> "torch.device":
    """Return the device that ``[train] device`` names; auto means the first GPU of CUDA if there is one.

    Raises:
        ValueError: torch does not find the device.
    """
    import torch

    device = (
        torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
    )
    if device.type == "cuda" and not torch.cuda.is_available():
        missing = "torch finds no GPU"
    elif device.type == "cuda" and (device.index or 0) >= max(1, torch.cuda.device_count()):
        missing = f"torch finds only {torch.cuda.device_count()} GPUs, counted from cuda:0"
    elif device.type == "mps" and not torch.backends.mps.is_available():
        missing = "torch finds no GPU of Apple"
    else:
        return device
    raise ValueError(f"train.device is {name}, but {missing}: use cpu or auto (see `attnbench doctor`)")


def device_name(device: "torch.device") -> str:
    """Return the name of the GPU or the processor; that of a GPU of another machine is not known here."""
    import torch

    if device.type == "mps":
        return f"{processor()[0]} (mps)"
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device) if torch.cuda.is_available() else device)
    return processor()[0]


def has_fast_bf16(device: "torch.device") -> bool:
    """Test whether the hardware computes in bf16; elsewhere it is emulated, which is slower than fp32."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FAST_BF16_GPU
    return device.type == "cpu" and bool(FAST_BF16 & processor()[1])


def synchronize(device: "torch.device") -> None:
    """Wait until a GPU has done all work queued there; a processor queues none."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def rng_state(device: "torch.device") -> "torch.Tensor":
    """Return the state of a GPU's generator of random numbers; empty for a processor."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.empty(0)


def set_rng_state(state: "torch.Tensor", device: "torch.device") -> None:
    """Restore what ``rng_state`` returned."""
    import torch

    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)


def processor() -> tuple[str, set[str]]:
    """Return the processor's name and feature flags; no flags except on Linux."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    label = name[1] if name else platform.processor() or platform.machine() or "cpu"
    return label, set(flags[1].split() if flags else ())
