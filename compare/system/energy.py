"""Energy used by processor and GPU, where the machine lets it be read."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
"""Folder of the energy counters of the processor packages (RAPL) on Linux; often only root can read them."""
JouleCounter = Callable[[], float]
"""Returns joules since some time in the past."""


class EnergyMeter:
    """Sum of the energy counters of the hardware that trains: the processor packages and the GPU."""

    def __init__(self, device: torch.device) -> None:
        self._counters = list(_packages())
        if device.type == "cuda":
            gpu = list(_gpu(device))
            self._counters = [*self._counters, *gpu] if gpu else []  # a sum without the GPU would mislead
        self._before = [counter() for counter in self._counters]

    def take(self) -> float | None:
        """Return the joules since the last call; None if they cannot be read."""
        now = [counter() for counter in self._counters]
        used = sum(now) - sum(self._before)
        self._before = now
        return used if self._counters else None


def _packages() -> Iterator[JouleCounter]:
    """Find the counter of each processor package, which includes its parts such as ``intel-rapl:0:1``."""
    for folder in sorted(POWERCAP.glob("intel-rapl:*")):
        if folder.name.count(":") == 1:
            with suppress(OSError, ValueError):
                yield _package(folder)


def _package(folder: Path) -> JouleCounter:
    """Make the counter of one package; the file's number restarts at 0 after minutes of full load."""
    span = int((folder / "max_energy_range_uj").read_text()) + 1
    last, total = int((folder / "energy_uj").read_text()), 0

    def read() -> float:
        nonlocal last, total
        now = int((folder / "energy_uj").read_text())
        total += (now - last) % span
        last = now
        return total / 1e6

    return read


def _gpu(device: torch.device) -> Iterator[JouleCounter]:
    """Find the counter of a GPU; needs NVIDIA's library (``pip install 'attnbench[energy]'``)."""
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(device).uuid
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # older cards have none
            yield lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
