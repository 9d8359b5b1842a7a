"""Conditions of a benchmark: machine, amount of work and versions."""

import platform
from typing import Any

import torch

from compare.benchmark.plan import BenchPlan
from compare.config.run import Run
from compare.system.device import device_name
from compare.system.version import code_version


def machine(run: Run) -> dict[str, Any]:
    """Describe the device and the number of threads."""
    device = device_name(torch.device(run.train.device))
    return {"device": device, "threads": torch.get_num_threads()}


def conditions(run: Run, plan: BenchPlan) -> dict[str, Any]:
    """Collect the conditions that two comparable results must share, besides the work of each measurement."""
    return {**machine(run), "batch_tokens": run.train.batch_tokens, **plan.amounts}


def versions() -> dict[str, str]:
    """Collect the versions, in which two comparable results may differ."""
    return {"torch": torch.__version__, "python": platform.python_version(), "code": code_version()}
