"""Where and on what a benchmark was measured."""

import platform
from typing import Any

import torch

from compare.benchmark.plan import BenchPlan
from compare.config.run import Run
from compare.system.device import device_name
from compare.system.version import code_version


def machine(run: Run) -> dict[str, Any]:
    """The device and how much of it is used."""
    device = device_name(torch.device(run.train.device))
    return {"device": device, "threads": torch.get_num_threads()}


def conditions(run: Run, plan: BenchPlan) -> dict[str, Any]:
    """What two results must share to be compared, beside the work of each row."""
    return {**machine(run), "batch_tokens": run.train.batch_tokens, **plan.amounts}


def versions() -> dict[str, str]:
    """What two results may differ in: to learn what it changes is why they are compared."""
    return {"torch": torch.__version__, "python": platform.python_version(), "code": code_version()}
