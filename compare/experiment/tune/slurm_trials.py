"""Trials of a search as jobs of a Slurm cluster: an array over those that have not ended."""

import logging
from collections.abc import Collection
from functools import partial

from compare.config.plugins import load_plugins
from compare.experiment.launch.job_array import Training, remove_unless_queued, submit_jobs, wait_for_jobs
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.launch.slurm_queue import SlurmQueue
from compare.experiment.prepare import prepare_data
from compare.experiment.tune.journal import Journal
from compare.experiment.tune.plan import Search, Trial
from compare.experiment.tune.search_folder import refuse_other_data
from compare.experiment.tune.trial import finish_trial
from compare.system.cpu import tune_cpu
from compare.system.log import Reporter, no_messages
from compare.system.plugins import code_version
from compare.system.signals import is_locked, lock_folder
from compare.training.serialization import METRICS

logger = logging.getLogger(__name__)


def run_array(search: Search, journal: Journal, options: SlurmOptions, reporter: Reporter) -> None:
    """Submit each trial that has not ended and is not queued yet, and wait for all of them.

    Repetitions with other seeds follow as a second array, if it depends on the others which they are.

    Args:
        search: the search, its budget matched.
        journal: its journal.
        options: what each job asks for.
        reporter: shows the progress of all trials.

    Raises:
        ValueError: the cluster refuses the jobs, or does not answer.
        Interrupted: a signal arrived; the jobs go on.
    """
    queue = SlurmQueue(journal.folder, options)
    knew_finalists = search.knows_finalists(journal.read())
    _run_once(search, journal, queue, reporter)
    if not knew_finalists and search.knows_finalists(journal.read()):
        _run_once(search, journal, queue, reporter)
    ended = journal.read()
    if not any(search.count_missing(run, ended) for run in search.tuned):
        remove_unless_queued(queue)


def _run_once(search: Search, journal: Journal, queue: SlurmQueue, reporter: Reporter) -> None:
    """Submit what can be begun now, and wait for all of it."""
    from compare.experiment.launch.slurm_job import SlurmJob  # needs submitit

    with lock_folder(queue.folder, wait=True):
        queued = queue.queued()
    trials = _unfinished_trials(search, journal, queued)
    folder = journal.folder.resolve()
    job_journal = Journal(folder, journal.space, journal.seed, journal.keys, journal.first_seed)
    works = {name: SlurmJob(partial(finish_in_job, trial, job_journal)) for name, trial in trials.items()}
    jobs = submit_jobs(queue, works)
    trainings = {
        name: Training(journal.folder_of(trial.key) / METRICS, trial.run.train.max_updates)
        for name, trial in trials.items()
    }

    def report_end(name: str) -> None:
        result = journal.read().get(trials[name].key)
        if result is None:
            reason = f"job {jobs[name]} ended too early (see {queue.log(jobs[name])})"
            logger.error(f"{name}: {reason}; run the same command again to continue it")
        elif result.reason:
            logger.error(f"{name}: {result.status}: {result.reason}")
        else:
            logger.info(f"{name}: {result.status}")

    wait_for_jobs(queue, jobs, trainings, report_end, reporter)


def _unfinished_trials(search: Search, journal: Journal, queued: Collection[str]) -> dict[str, Trial]:
    """Return the trials that have not ended by name, but for those that others than jobs work on."""
    ended = journal.read()
    trials = {trial.name: trial for trial in search.trials(ended) if trial.key not in ended}
    for name, trial in list(trials.items()):
        folder = journal.folder_of(trial.key)
        if name not in queued and is_locked(folder):
            logger.warning(f"{name}: left out: {folder} is in use by another process")
            del trials[name]
    return trials


def finish_in_job(trial: Trial, journal: Journal) -> str:
    """Finish a trial in a job, from where it was saved; returns its status.

    Args:
        trial: the trial.
        journal: the journal of the search, in whose folder the data are encoded.

    Raises:
        Locked: another process works on the trial.
        Interrupted: a signal arrived; the state is saved.
        ValueError: the saved state is damaged, or the corpus has changed since the search was begun, or the
            settings of the model since the job was submitted.
    """
    load_plugins(trial.run.plugins)
    code_version()  # of the sources as they are now
    tune_cpu(batch_tokens=trial.run.train.batch_tokens)
    with no_messages("compare.experiment.prepare"):  # who began the search has printed them
        run = trial.run.with_seed(journal.first_seed)  # of whose batches tune.json has the hash
        prepared = prepare_data(run, journal.folder / "encoded", tests=False)
    refuse_other_data(journal.folder, prepared)
    return finish_trial(trial, journal, prepared, Reporter(quiet=True))
