"""Workers of one search side by side on this machine; they share its journal."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.experiment.tune.plan import Search, TuningPlan
from compare.experiment.tune.space import LogRange, Values
from compare.system.children import Task, run_children
from compare.system.log import Reporter
from compare.system.slots import count_jobs, local_slots

logger = logging.getLogger(__name__)

WORKER = "compare.experiment.tune.search:work_on_search"


def run_workers(
    search: Search, folder: Path, overrides: Sequence[str], reporter: Reporter, jobs: int
) -> None:
    """Finish the trials of a search in child processes, which take them one by one.

    Args:
        search: the search.
        folder: its folder, which ``open_search`` has begun.
        overrides: settings that replace those of the search's file.
        reporter: shows the progress of all trials.
        jobs: number of workers; 0: one per GPU, or one per two cores.

    Raises:
        ValueError: a trial could not be finished, such as one with a damaged state; the others have ended.
        Interrupted: a signal arrived; everything is saved.
    """
    device = search.runs[0].train.device
    number = min(count_jobs(jobs, device), search.count_trials({}))
    plugins = sorted({name for run in search.runs for name in run.plugins})
    arguments = [str(search.config), str(folder), dataclasses.asdict(search.plan), list(overrides), plugins]
    tasks = [
        Task(name=f"worker {index}", function=WORKER, arguments=arguments) for index in range(1, number + 1)
    ]
    outcomes = run_children(tasks, local_slots(device, number), reporter)
    for outcome in outcomes:
        if outcome.kind == "died":
            logger.error(f"{outcome.name}: {outcome.text}; run the same command again to continue its trial")
    for outcome in outcomes:
        if outcome.kind == "error":
            raise ValueError(outcome.text)


def read_plan(content: Mapping[str, Any]) -> TuningPlan:
    """Read a plan from what ``dataclasses.asdict`` made of it and JSON has carried."""
    space = {
        name: Values(tuple(each["values"])) if "values" in each else LogRange(**each)
        for name, each in content["space"].items()
    }
    return TuningPlan(**{**content, "space": space})
