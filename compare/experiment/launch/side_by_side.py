"""Launcher of independent runs side by side on this machine, each in a process of its own."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compare.config.run import Run, resolve_models
from compare.config.sections import Experiment
from compare.experiment.launch.begin_runs import begin_runs
from compare.experiment.prepare import PreparedData
from compare.experiment.run import announce
from compare.experiment.timing import time_all
from compare.results.run_folder import RunFolder
from compare.results.store import write_json_lines
from compare.system.children import Outcome, Task, run_children
from compare.system.log import Reporter
from compare.system.signals import lock_folder
from compare.system.slots import count_jobs, local_slots

logger = logging.getLogger(__name__)

WORKER = "compare.experiment.launch.worker:finish_begun_run"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Finish runs in child processes; the models are timed in this process, after all of them."""

    jobs: int = 0
    """Runs at a time; 0: one per GPU, or one per two cores."""

    def resolve(self, experiment: Experiment, context: str) -> list[Run]:
        """Decide the settings of each model, for the devices of this machine.

        Args:
            experiment: the experiment as written.
            context: the file that error messages name.
        """
        return resolve_models(experiment, context)

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
        announce(begun, prepared, reporter)
        tasks = [Task(name=run.name, function=WORKER, arguments=[str(run.folder)]) for run in begun]
        experiment = runs[0].folder.parent
        outcomes = run_children(tasks, slots, reporter, lambda outcome: _ended(outcome, experiment))
        errors += [ValueError(outcome.text) for outcome in outcomes if outcome.kind == "error"]
        if errors:
            raise errors[0]

    def time_all(self, folder: Path, settings: Run, prepared: PreparedData) -> None:
        """Time all models in turn, alone, with all threads of this process.

        Args:
            folder: the folder of the experiment.
            settings: any run of it.
            prepared: its data.
        """
        time_all(folder, settings, prepared)


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
    try:
        with lock_folder(experiment, wait=True):
            write_json_lines(experiment)
    except (ValueError, OSError) as error:  # the other runs go on; the end of the command rebuilds the file
        logger.error(str(error))
