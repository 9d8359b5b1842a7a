"""Energy that processor and GPU have used, where the machine lets it be read."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
"""Where Linux shows the counters of the processor packages (RAPL); often root alone may read them."""
JouleCounter = Callable[[], float]
"""Joules since some time in the past."""


class EnergyMeter:
    """Adds up the counters of what a training keeps busy: the processor packages, and its GPU."""

    def __init__(self, device: torch.device) -> None:
        self._counters = list(_packages())
        if device.type == "cuda":
            gpu = list(_gpu(device))
            self._counters = [*self._counters, *gpu] if gpu else []  # without the GPU's the sum would deceive
        self._before = [counter() for counter in self._counters]

    def take(self) -> float | None:
        """Joules since the last call; None where they cannot be read."""
        now = [counter() for counter in self._counters]
        used = sum(now) - sum(self._before)
        self._before = now
        return used if self._counters else None


def _packages() -> Iterator[JouleCounter]:
    """A counter for each processor package; its parts, ``intel-rapl:0:1``, are within it."""
    for folder in sorted(POWERCAP.glob("intel-rapl:*")):
        if folder.name.count(":") == 1:
            with suppress(OSError, ValueError):
                yield _package(folder)


def _package(folder: Path) -> JouleCounter:
    """The counter of one package, which begins again at 0 after some minutes of full load."""
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
    """The counter of a GPU, if NVIDIA's library is installed (``pip install 'attnbench[energy]'``)."""
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(device).uuid
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # older cards have none
            yield lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
