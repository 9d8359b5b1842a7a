"""The cores that this process may use, and groups of them for processes side by side."""

import os
from collections.abc import Sequence
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")
"""On Linux, one folder per logical processor, which tells the physical core that it belongs to."""


def usable_processors() -> list[int]:
    """List the logical processors that this process may use, those of one physical core side by side."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return sorted(usable, key=lambda number: (*physical_core(number), number))


def physical_core(processor: int) -> tuple[int, int]:
    """Return package and core of a logical processor; where the system does not tell, each is a core."""
    folder = TOPOLOGY / f"cpu{processor}" / "topology"
    try:
        package, core = (int((folder / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return 0, processor
    return package, core


def count_cores(processors: Sequence[int]) -> int:
    """Count the physical cores of logical processors."""
    return len({physical_core(number) for number in processors})


def split_processors(groups: int) -> list[list[int]]:
    """Split the usable logical processors into groups of equal size, whole physical cores where possible.

    Args:
        groups: at least 1; with more groups than processors, groups share them.
    """
    processors = usable_processors()
    size = max(1, len(processors) // groups)
    starts = [(number * size) % (len(processors) // size * size) for number in range(groups)]
    return [processors[start : start + size] for start in starts]


def pin_to(processors: Sequence[int]) -> None:
    """Let this process run on these logical processors only, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)
