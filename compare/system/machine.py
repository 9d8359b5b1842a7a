"""Machine that figures were measured on."""

import re
import statistics
from dataclasses import dataclass

import torch

from compare.system.device import CPUINFO, device_name
from compare.system.cores import usable_processors


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
    """Median clock of the processors now; None where the system does not tell."""


def this_machine(device: torch.device) -> Machine:
    """Describe this machine, and this process's use of it."""
    return Machine(
        device=device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        cores=len(usable_processors()),
        clock_mhz=_clock_mhz(),
    )


def _clock_mhz() -> float | None:
    """Read the clocks that Linux reports for the processors."""
    path = CPUINFO
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    clocks = [float(clock) for clock in re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE)]
    return statistics.median(clocks) if clocks else None
