"""Launcher of independent runs side by side on this machine, each in a process of its own."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compare.config.run import Run
from compare.experiment.experiment_folder import begin_run
from compare.experiment.prepare import PreparedData
from compare.experiment.run_all import has_ended
from compare.experiment.timing.time_all import time_all
from compare.results.run_folder import RunFolder
from compare.results.store import write_json_lines
from compare.system.children import Outcome, Task, run_children
from compare.system.locks import Locked, lock_folder
from compare.system.progress import Reporter
from compare.system.slots import count_jobs, local_slots

logger = logging.getLogger(__name__)

WORKER = "compare.experiment.launch.worker:finish_begun_run"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Finish runs in child processes; the models are timed in this process, after all of them."""

    jobs: int = 0
    """Runs at a time; 0: one per GPU, or one per two cores."""
    other_machine: bool = False

    def run_each(self, runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
        """Finish each run that has not ended; if one fails, the others still run.

        Args:
            runs: the runs, in the order in which they are begun.
            prepared: their data.
            reporter: shows the progress of all.

        Raises:
            ValueError: a run could not be finished, such as one with damaged files; all others have been run.
            Interrupted: a signal arrived; everything is saved.
        """
        device = runs[0].run.train.device
        slots = local_slots(device, min(count_jobs(self.jobs, device), len(runs)))
        begun, errors = begin_runs(runs, prepared)
        tasks = [Task(name=run.name, function=WORKER, arguments=[str(run.folder)]) for run in begun]
        experiment = runs[0].folder.parent
        outcomes = run_children(tasks, slots, reporter, lambda outcome: _ended(outcome, experiment))
        errors += [ValueError(outcome.text) for outcome in outcomes if outcome.kind == "error"]
        if errors:
            raise errors[0]

    def time_all(self, folder: Path, settings: Run, prepared: PreparedData) -> None:
        """Time all models in turn, alone, with all threads of this process."""
        time_all(folder, settings, prepared)


def begin_runs(runs: Sequence[RunFolder], prepared: PreparedData) -> tuple[list[RunFolder], list[ValueError]]:
    """Create the folders of the runs that have not ended, and return these runs.

    A run that another process works on is left out with a message. So is one whose folder is damaged; its
    error is returned.
    """
    begun: list[RunFolder] = []
    errors: list[ValueError] = []
    for number, run in enumerate(runs, start=1):
        position = f"[{number}/{len(runs)}] {run.name}"
        try:
            with lock_folder(run.folder):
                if has_ended(run):
                    logger.info(f"{position}: already finished")
                    continue
                begin_run(run, prepared)
                begun.append(run)
        except Locked as locked:
            logger.warning(f"{position}: left out: {locked}")
        except ValueError as error:
            logger.error(f"{position}: {error}")
            errors.append(error)
    return begun, errors


def _ended(outcome: Outcome, experiment: Path) -> None:
    """Tell how a run has ended, and write results.jsonl."""
    if outcome.kind == "done":
        logger.info(f"{outcome.name}: {outcome.value}")
    elif outcome.kind == "locked":
        logger.warning(f"{outcome.name}: left out: {outcome.text}")
    elif outcome.kind == "error":
        logger.error(f"{outcome.name}: {outcome.text}")
    elif outcome.kind == "died":
        logger.error(f"{outcome.name}: {outcome.text}; run the same command again to continue it")
    with lock_folder(experiment, wait=True):
        write_json_lines(experiment)
