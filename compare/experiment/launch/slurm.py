"""Launcher of runs as jobs of a Slurm cluster: an array over the runs, then one job that times the models."""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compare.config.run import Run, resolve_models
from compare.config.sections import Experiment
from compare.experiment.launch.begin_runs import begin_runs
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.launch.slurm_queue import SlurmQueue, ensure_cluster
from compare.experiment.prepare import PreparedData
from compare.experiment.run_all import announce
from compare.experiment.timing.time_all import results_to_time
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, write_json_lines
from compare.system.locks import lock_folder
from compare.system.progress import Reporter
from compare.system.signals import Interrupted, StopRequest, stop_on_signals

logger = logging.getLogger(__name__)

TIMING = "timing"
"""Name of the job that times the models."""
POLL_S = {"slurm": 10.0, "local": 0.2}
"""Seconds between two looks at the jobs, by cluster."""
STOP_S = 0.2
"""Longest time until a signal is acted on."""
TAIL_BYTES = 10_000
"""End of a training log that is read for the progress; a line is far shorter."""


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
        ensure_cluster(self.options)
        if experiment.budget.match == "time":
            raise ValueError(
                f"{context}: budget.match = 'time' is measured on the device of the runs, which this machine "
                "may lack: with --slurm, match updates, params or flops"
            )
        train = experiment.train
        if train.device == "auto":
            train = replace(train, device="cuda" if self.options.gpus else "cpu")
        if train.device != "cpu" and train.precision == "auto":
            raise ValueError(
                f"{context}: train.precision = 'auto' is decided by the GPU, which this machine may lack: "
                "with --slurm, add --set train.precision=bf16 or fp32"
            )
        return resolve_models(replace(experiment, train=train), context, other_machine=True)

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
        jobs = self._submit(queue, {run.name: SlurmJob(str(run.folder.resolve())) for run in begun})

        announce(begun, prepared, reporter)

        def ended(name: str) -> None:
            _tell_end(experiment / name, jobs[name], queue.log(jobs[name]))

        self._wait(queue, jobs, {run.name: run for run in begun}, ended, reporter)
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
            work = SlurmJob(str(folder.resolve()), timing_seed=settings.train.seed)
            jobs = self._submit(queue, {TIMING: work})
            self._wait(queue, jobs, {}, lambda name: None, Reporter(quiet=True))
            if results_to_time(folder):
                log = queue.log(jobs[TIMING])
                logger.error(
                    f"job {jobs[TIMING]} ended without speeds (see {log}); run the same command again"
                )
                return
        if all(read_result(run).status == "done" for run in _runs(folder)):
            with lock_folder(queue.folder, wait=True):
                ended = not queue.queued()
            if ended:
                queue.remove()

    def _submit(self, queue: SlurmQueue, works: Mapping[str, Callable[[], str]]) -> dict[str, str]:
        """Submit what is not queued yet; returns the ids of all jobs by name."""
        with lock_folder(queue.folder, wait=True):
            queued = queue.queued()
            new = {name: work for name, work in works.items() if name not in queued}
            submitted = queue.submit(new) if new else {}
        for name in works:
            earlier = "" if name in submitted else ", submitted by an earlier call"
            logger.info(f"{name}: job {(queued | submitted)[name]}{earlier}")
        return {name: (queued | submitted)[name] for name in works}

    def _wait(
        self,
        queue: SlurmQueue,
        jobs: Mapping[str, str],
        runs: Mapping[str, RunFolder],
        ended: Callable[[str], None],
        reporter: Reporter,
    ) -> None:
        """Wait until the cluster has listed none of the jobs twice in a row; show the progress of runs."""
        absent, shown = Counter[str](), dict[str, Any]()
        waiting = dict(jobs)
        with reporter.trainings() as show, stop_on_signals() as stop:
            while waiting:
                _sleep(POLL_S[self.options.cluster], stop)
                if stop.signum:
                    names = ", ".join(waiting.values())
                    raise Interrupted(stop.signum, f"stopped waiting for jobs {names}, which go on")
                for name in [name for name in waiting if name in runs]:
                    line = _last_line(runs[name].metrics)
                    if line is not None and line != shown.get(name):
                        shown[name] = line
                        show(name, runs[name].run.train.max_updates, line)
                try:
                    active = queue.active(waiting.values())
                except ValueError as error:
                    logger.warning(str(error))
                    continue
                for name in [name for name, job in waiting.items() if job not in active]:
                    absent[name] += 1
                    if absent[name] == 2:
                        del waiting[name]
                        ended(name)


def _sleep(seconds: float, stop: StopRequest) -> None:
    """Sleep until a signal arrives."""
    end = time.monotonic() + seconds
    while not stop.signum and time.monotonic() < end:
        time.sleep(min(STOP_S, seconds))


def _runs(experiment: Path) -> list[Path]:
    """List the run folders of an experiment."""
    return [path.parent for path in experiment.glob("*/config.toml")]


def _tell_end(run: Path, job: str, log: Path) -> None:
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


def _last_line(metrics: Path) -> dict[str, Any] | None:
    """Read the last whole line of a training log that is being written; None while there is none."""
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            *_, line, _rest = b"\n", b"\n", *file.read().split(b"\n")
        content = json.loads(line)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
