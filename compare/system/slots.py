"""Places for child processes side by side: groups of cores, or one GPU each."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from compare.system.processor import count_cores, split_processors, usable_processors

VISIBLE = "CUDA_VISIBLE_DEVICES"
MAX_JOBS = 1_000
CORES_PER_JOB = 2
"""Cores of each run with ``--jobs auto``: small models gain little from a third."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The place of one child at a time."""

    threads: int
    """CPU threads of torch."""
    processors: Sequence[int] = ()
    """The logical processors that the child runs on; empty: all."""
    gpu: str | None = None
    """The only GPU that the child sees, as in CUDA_VISIBLE_DEVICES; None: all."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a child in this place."""
        gpu = {} if self.gpu is None else {VISIBLE: self.gpu}
        return {**os.environ, "OMP_NUM_THREADS": str(self.threads), **gpu}

    def __str__(self) -> str:
        processors = f"processors {', '.join(map(str, self.processors))}" if self.processors else ""
        gpu = f"GPU {self.gpu}" if self.gpu is not None else ""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return ", ".join(filter(None, [threads, processors, gpu]))


def parse_jobs(text: str) -> int:
    """Read the value of ``--jobs``; 0 stands for auto.

    Raises:
        ValueError: neither auto nor a whole number from 1 on.
    """
    if text == "auto":
        return 0
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_JOBS):
        raise ValueError(f"--jobs {text}: must be auto, or a whole number from 1 to {MAX_JOBS:,}")
    return int(text)


def count_jobs(jobs: int, device: str) -> int:
    """Return ``jobs``, or for 0 as many as suit this machine: one per GPU, or one per two cores."""
    if jobs:
        return jobs
    places = len(visible_gpus()) if device != "cpu" else count_cores(usable_processors()) // CORES_PER_JOB
    return max(1, places)


def local_slots(device: str, number: int) -> list[Slot]:
    """Divide this machine among ``number`` children.

    On a CPU, each gets a group of cores and as many threads as it has cores (at most those of this process).
    On GPUs, each gets one GPU, or shares one with others if there are fewer; the cores are not divided, but
    the threads are.

    Args:
        device: the device of the runs, such as cpu or cuda.
        number: of children at a time.
    """
    import torch

    groups = split_processors(number)
    threads = [max(1, min(count_cores(group), torch.get_num_threads())) for group in groups]
    if device == "cpu":
        return [Slot(threads=each, processors=group) for each, group in zip(threads, groups, strict=True)]
    gpus = visible_gpus() if device in ("cuda", "cuda:0") else []
    return [
        Slot(threads=each, gpu=gpus[index % len(gpus)] if gpus else None)
        for index, each in enumerate(threads)
    ]


def visible_gpus() -> list[str]:
    """List the GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return named[:count] if named else [str(index) for index in range(count)]
