"""Launcher of runs as jobs of a Slurm cluster: an array over the runs, then one job that times the models."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from compare.config.run import Run
from compare.config.sections import Experiment
from compare.experiment.launch.begin_runs import begin_runs
from compare.experiment.launch.job_array import Training, remove_unless_queued, submit_jobs, wait_for_jobs
from compare.experiment.launch.node_settings import resolve_for_nodes
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.launch.slurm_queue import SlurmQueue
from compare.experiment.launch.worker import finish_folder, time_folder
from compare.experiment.prepare import PreparedData
from compare.experiment.run import announce
from compare.experiment.timing import results_to_time
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, write_json_lines
from compare.system.log import Reporter
from compare.system.signals import lock_folder

logger = logging.getLogger(__name__)

TIMING = "timing"
"""Name of the job that times the models."""


@dataclass(frozen=True, kw_only=True)
class SlurmArray:
    """Finish runs in jobs of one array, and wait for them; one more job times the models."""

    options: SlurmOptions = field(default_factory=SlurmOptions)
    """What each job asks the cluster for; see ``parse_slurm``."""

    def resolve(self, experiment: Experiment, context: str) -> list[Run]:
        """Decide the settings of each model, for the nodes of the cluster.

        Args:
            experiment: the experiment as written.
            context: the file that error messages name.

        Raises:
            ValueError: bad settings, something that only a node could decide, or no cluster.
        """
        return resolve_for_nodes(experiment, context, self.options)

    def run_each(self, runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
        """Submit each run that has not ended and is not queued yet, and wait for all of them.

        Args:
            runs: the runs.
            prepared: their data.
            reporter: shows the progress of all.

        Raises:
            ValueError: a run could not be begun, or the cluster refuses the jobs.
            Interrupted: a signal arrived; the jobs go on.
        """
        from compare.experiment.launch.slurm_job import SlurmJob  # needs submitit

        experiment = runs[0].folder.parent
        queue = SlurmQueue(experiment, self.options)
        with lock_folder(queue.folder, wait=True):
            queued = queue.queued()
        begun, errors = begin_runs(runs, prepared, queued=queued)
        works = {
            run.name: SlurmJob(partial(finish_folder, run.folder.resolve(), Reporter(quiet=True)))
            for run in begun
        }
        jobs = submit_jobs(queue, works)
        announce(begun, prepared, reporter)

        def ended(name: str) -> None:
            _report_end(experiment / name, jobs[name], queue.log(jobs[name]))

        trainings = {run.name: Training(run.metrics, run.run.train.max_updates) for run in begun}
        wait_for_jobs(queue, jobs, trainings, ended, reporter)
        if errors:
            raise errors[0]

    def time_all(self, folder: Path, settings: Run, prepared: PreparedData) -> None:
        """Time all models in turn, in a job of its own, if all runs have ended.

        Args:
            folder: the folder of the experiment.
            settings: any run of it.
            prepared: its data.

        Raises:
            ValueError: the cluster refuses the job.
            Interrupted: a signal arrived; the job goes on.
        """
        from compare.experiment.launch.slurm_job import SlurmJob

        queue = SlurmQueue(folder, self.options)
        if results_to_time(folder):
            work = SlurmJob(partial(time_folder, folder.resolve(), settings.train.seed))
            jobs = submit_jobs(queue, {TIMING: work})
            wait_for_jobs(queue, jobs, {}, lambda name: None, Reporter(quiet=True))
            if results_to_time(folder):
                log = queue.log(jobs[TIMING])
                logger.error(
                    f"job {jobs[TIMING]} ended without speeds (see {log}); run the same command again"
                )
                return
        if all(read_result(run).status == "done" for run in _runs(folder)):
            remove_unless_queued(queue)


def _runs(experiment: Path) -> list[Path]:
    """List the run folders of an experiment."""
    return [path.parent for path in experiment.glob("*/config.toml")]


def _report_end(run: Path, job: str, log: Path) -> None:
    """Tell how a run has ended, and write results.jsonl."""
    result = read_result(run)
    if result.status == "unfinished":
        reason = result.reason or f"job {job} ended too early (see {log})"
        logger.error(f"{run.name}: {reason}; run the same command again to continue it")
    elif result.status == "failed":
        logger.error(f"{run.name}: failed: {result.reason}")
    else:
        logger.info(f"{run.name}: {result.status}")
    with lock_folder(run.parent, wait=True):
        write_json_lines(run.parent)
