"""Peak memory: of the GPU, or of this process."""

import sys
from contextlib import suppress
from pathlib import Path

import torch


def reset_peak_memory(device: torch.device) -> None:
    """Begin to measure the peak anew, so that a row does not show an earlier row's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # elsewhere the peak of the whole process is all there is
        Path("/proc/self/clear_refs").write_text("5")  # Linux: sets VmHWM back to what is used now


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory held since ``reset_peak_memory``: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        import resource  # absent on Windows

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else 1024 * largest
