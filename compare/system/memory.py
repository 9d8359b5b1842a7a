"""Peak memory of the GPU or of this process, and the memory of this machine."""

import ctypes
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn


def physical_memory_bytes() -> int | None:
    """Return the size of this machine's memory in bytes; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # AttributeError: Windows
        return None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether a tensor could not be allocated; on a CPU only torch's message shows this."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of the peak, so that a run does not report that of an earlier run.

    Memory that earlier work has freed goes back to the system first: ``tune_cpu`` keeps it in the process.
    What comes next is slowed for a moment, as it takes it anew; so a timed repeat is no place for this.
    """
    if device.type == "cuda":
        # Statistics of a device other than the first exist only afterwards.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)
        return
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc can; where it cannot, freed memory counts as used
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):  # only Linux can; elsewhere the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the memory in use now


def gpu_memory_in_use(device: torch.device) -> int:
    """Return the bytes of all tensors on a GPU."""
    return torch.cuda.memory_allocated(device)


def tensor_bytes(*holders: nn.Module | torch.optim.Optimizer) -> int:
    """Return the size of the weights and buffers of modules and of states of optimizers; shared ones once."""
    tensors: list[Tensor] = []
    for holder in holders:
        if isinstance(holder, nn.Module):
            tensors += [*holder.parameters(), *holder.buffers()]
        else:
            states = holder.state.values()
            tensors += [value for state in states for value in state.values() if isinstance(value, Tensor)]
    storages = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}
    return sum(storages.values())


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak since ``reset_peak_memory``, in bytes: of the GPU if ``device`` is one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        if sys.platform == "win32":
            return _windows_peak_bytes()
        import resource  # not on Windows

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else 1024 * largest


if sys.platform == "win32":

    class _ProcessMemoryCounters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS of the Windows API; only the peak is read."""

        _fields_ = (
            ("cb", ctypes.c_uint32),
            ("page_fault_count", ctypes.c_uint32),
            ("peak_working_set_size", ctypes.c_size_t),
            ("others", ctypes.c_size_t * 7),
        )

    def _windows_peak_bytes() -> int:
        """Return the largest working set of this process."""
        counters = _ProcessMemoryCounters(cb=ctypes.sizeof(_ProcessMemoryCounters))
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        read = kernel.K32GetProcessMemoryInfo
        read.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
        if not read(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.cb):
            raise ctypes.WinError(ctypes.get_last_error())
        return int(counters.peak_working_set_size)
