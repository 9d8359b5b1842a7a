"""The device that a config names: choice, name, cores, and native bfloat16 arithmetic."""

import os
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
    """Return the device that ``[train] device`` names; auto means the GPU if there is one.

    Raises:
        ValueError: ``name`` is cuda, and torch finds no GPU.
    """
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "train.device is cuda, but torch finds no GPU: use cpu or auto (see `attnbench doctor`)"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def device_name(device: "torch.device") -> str:
    """Return the name of the GPU or the processor."""
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else processor()[0]


def has_fast_bf16(device: "torch.device") -> bool:
    """Test whether the hardware computes in bf16; elsewhere it is emulated, which is slower than fp32."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FAST_BF16_GPU
    return bool(FAST_BF16 & processor()[1])


def processor() -> tuple[str, set[str]]:
    """Return the processor's name and feature flags; no flags except on Linux."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    label = name[1] if name else platform.processor() or platform.machine() or "cpu"
    return label, set(flags[1].split() if flags else ())


def usable_cores() -> int:
    """Count the cores this process may use; they may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
