"""What this machine is: the device a config names, its name, and whether it multiplies bfloat16 itself."""

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FAST_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Flags in /proc/cpuinfo of processors that multiply bfloat16 numbers themselves (x86 and Arm names)."""
FAST_BF16_GPU = (8, 0)
"""The compute capability from which GPUs do."""
CPUINFO = Path("/proc/cpuinfo")


def pick_device(name: str) -> "torch.device":
    """The device that ``[train] device`` names; auto takes the GPU where there is one."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "train.device is cuda, but torch finds no GPU: use cpu or auto (see `attnbench doctor`)"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def device_name(device: "torch.device") -> str:
    """The GPU's or the processor's name."""
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else processor()[0]


def has_fast_bf16(device: "torch.device") -> bool:
    """Whether bf16 is worth using there; elsewhere it is emulated: correct, but slower than fp32."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FAST_BF16_GPU
    return bool(FAST_BF16 & processor()[1])


def processor() -> tuple[str, set[str]]:
    """The processor's name and feature flags; no flags where the system does not tell."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    known = name[1] if name else platform.processor() or platform.machine() or "cpu"
    return known, set(flags[1].split() if flags else ())
