"""Random search over the settings of all models of an experiment, with equal effort for each.

Every model gets the same number of trials with the same draws, updates and batches, and is measured on the
validation set alone: the test sets are not read. Nothing is pruned or stopped early.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from compare.config.plugins import load_plugins
from compare.experiment.folder import locked_for_setup
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.prepare import PreparedData
from compare.experiment.tune.best_config import best_config
from compare.experiment.tune.candidates import Candidate, find_winners
from compare.experiment.tune.description import DESCRIPTION, read_description
from compare.experiment.tune.journal import Journal
from compare.experiment.tune.plan import Search, TuningPlan, plan_search
from compare.experiment.tune.search_folder import open_search
from compare.experiment.tune.slurm_trials import run_array
from compare.experiment.tune.trial import finish_trial, remove_checkpoints
from compare.experiment.tune.trial_log import TrialKey, TrialResult, write_trials
from compare.experiment.tune.workers import read_plan, run_workers
from compare.results.store import check_output_folder
from compare.system.child import Channel
from compare.system.cpu import tune_cpu
from compare.system.log import Reporter, no_messages
from compare.system.plugins import code_version
from compare.system.signals import Locked, is_locked, lock_folder
from data.files import read_bytes, remove_leftovers, write_atomically

logger = logging.getLogger(__name__)

BEST = "best.toml"
"""Name of the winning experiment file."""
CONFIG_BYTES = 1_000_000
"""Size that no experiment file reaches."""
POLL_S = 1.0
"""Seconds between two looks at trials that other processes work on."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """State of a search: complete, or with trials that other processes work on."""

    trials: Sequence[TrialResult]
    """Ended trials by number, then in the order of the models, then of the seeds."""
    missing: int
    """Trials of the tuned models that have not ended."""
    best: Path | None
    """The winning experiment file; None while any are missing, or if all trials of a tuned model failed."""

    @property
    def winners(self) -> dict[str, Candidate]:
        """The best of the ended trials of each model that has one, with all its seeds.

        best.toml has only those of models whose trials have all ended.
        """
        return find_winners(self.trials)


def tune_experiment(
    config: str | Path,
    folder: str | Path,
    plan: TuningPlan | None = None,
    *,
    overrides: Sequence[str] = (),
    reporter: Reporter | None = None,
    jobs: int = 1,
    slurm: SlurmOptions | None = None,
) -> Tuning:
    """Search the best settings of every model of an experiment on its validation set.

    Trials that have ended stay as they are; one that was stopped continues from its last saved state. Several
    processes may work in one folder: a trial that another process is working on is left to it.

    Args:
        config: the experiment's TOML file.
        folder: receives the journal, trials.jsonl and best.toml; created where it is missing.
        plan: number of trials, updates, seed and space; by default those of ``TuningPlan()``.
        overrides: ``section.key=value`` settings that replace those of the file.
        reporter: shows the progress of training; by default log messages do.
        jobs: trials at a time, in as many child processes; 0: one per GPU, or one per two cores.
        slurm: finish each trial in a job of a cluster instead, which asks for this; see ``parse_slurm``.

    Raises:
        ValueError: bad settings or data, no optuna, ``folder`` holds another search, or the cluster refuses
            the jobs.
        Interrupted: a signal arrived; everything is saved, and jobs of a cluster go on.
    """
    if slurm and jobs != 1:
        raise ValueError(f"jobs = {jobs}: the cluster decides how many trials run at a time: leave it out")
    code_version()  # of the sources as they are now: they may be edited during a long search
    folder = Path(folder)
    search = _plan(config, folder, plan, overrides, slurm)
    tune_cpu(batch_tokens=search.experiment.train.batch_tokens)
    with locked_for_setup(folder):
        remove_leftovers(folder)
        search, prepared = search.prepare(folder / "encoded")
        keys = open_search(folder, search, prepared)
        prepared.keep_hash()
        journal = Journal(folder, search.plan.space, search.plan.seed, keys, search.seeds[0])
        journal.read()  # names what is damaged
    reporter = reporter or Reporter(quiet=True)
    if slurm:
        run_array(search, journal, slurm, reporter)
    elif jobs == 1:
        _run_each(search, journal, prepared, reporter)
    else:
        run_workers(search, folder, overrides, reporter, jobs)
    return _write_outcome(search, folder, journal)


def work_on_search(
    channel: Channel,
    config: str,
    folder: str,
    plan: Mapping[str, Any],
    overrides: Sequence[str],
    plugins: Sequence[str],
) -> None:
    """Work on a search in a child process, until each trial has ended or another process works on it."""
    load_plugins(plugins)
    quiet = [no_messages(f"compare.{name}") for name in ("experiment.prepare", "system.locks")]
    with channel.messages(), quiet[0], quiet[1]:
        tune_experiment(config, folder, read_plan(plan), overrides=overrides, reporter=channel.reporter())


def plan_trials(
    config: str | Path,
    folder: str | Path,
    plan: TuningPlan | None = None,
    *,
    overrides: Sequence[str] = (),
    slurm: SlurmOptions | None = None,
) -> list[Mapping[str, Any]]:
    """Check settings, folder and data as ``tune_experiment`` would, without writing any file.

    Args:
        config: the experiment's TOML file.
        folder: where the search would be kept.
        plan: as for ``tune_experiment``.
        overrides: as for ``tune_experiment``.
        slurm: as for ``tune_experiment``.

    Returns:
        The settings of each trial, the same for every model.

    Raises:
        ValueError: as ``tune_experiment``.
    """
    search = _plan(config, Path(folder), plan, overrides, slurm)
    with TemporaryDirectory() as place:
        search, prepared = search.prepare(Path(place))
        open_search(Path(folder), search, prepared, write=False)
    return list(search.draws)


def _plan(
    config: str | Path,
    folder: Path,
    plan: TuningPlan | None,
    overrides: Sequence[str],
    slurm: SlurmOptions | None,
) -> Search:
    """Check all that needs no data."""
    check_output_folder(folder)
    return plan_search(config, plan or TuningPlan(), overrides, slurm)


def _run_each(search: Search, journal: Journal, prepared: PreparedData, reporter: Reporter) -> None:
    """Finish each trial that has not ended, one after the other; if one cannot, the others can.

    What another process works on is left to it. But where that decides which trials are repeated with other
    seeds, this one waits for it, to share these too.

    Raises:
        ValueError: a trial could not be finished, such as one with a damaged state; the others have ended.
    """
    errors: list[ValueError | OSError] = []
    tried: set[TrialKey] = set()
    left_out: set[TrialKey] = set()
    waits = False
    while True:
        ended = journal.read()
        trials = enumerate(search.trials(ended), start=1)
        unfinished = [(number, trial) for number, trial in trials if trial.key not in ended]
        untried = [each for each in unfinished if each[1].key not in tried]
        if untried:
            number, trial = untried[0]
            tried.add(trial.key)
            position = f"[{number}/{search.count_trials(ended)}] "
            try:
                finish_trial(trial, journal, prepared, reporter, position)
            except Locked as locked:
                left_out.add(trial.key)
                logger.info(f"{position}{trial.name}: left out: {locked}")
            except (ValueError, OSError) as error:
                errors.append(error)
                logger.error(f"{position}{trial.name}: {error}")
        elif search.knows_finalists(ended) or not left_out & {trial.key for _, trial in unfinished}:
            break
        else:
            if not waits:
                logger.info("waiting for trials that decide which ones are repeated with other seeds")
            waits = True
            sleep(POLL_S)
            tried -= {key for key in left_out if not is_locked(journal.folder_of(key))}
    if errors:
        raise errors[0]


def _write_outcome(search: Search, folder: Path, journal: Journal) -> Tuning:
    """Write trials.jsonl, and best.toml once every trial has ended; remove what killed processes left.

    best.toml has the best settings of all models whose trials have ended, not of the tuned ones alone.
    """
    labels, tuned = [run.label for run in search.runs], [run.label for run in search.tuned]
    with lock_folder(folder, wait=True):
        effort = read_description(folder / DESCRIPTION)  # another process may have raised it
        search = search.with_effort(effort)
        ended = journal.read()
        seeds = [*search.seeds, *sorted({seed for _, _, seed in ended} - set(search.seeds))]
        trials = sorted(
            ended.values(), key=lambda each: (each.trial, labels.index(each.label), seeds.index(each.seed))
        )
        missing = {run.label: search.count_missing(run, ended) for run in search.runs}
        for trial in trials:
            remove_checkpoints(journal.folder_of(trial.key))
        write_trials(folder, trials)
        winners = {label: trial for label, trial in find_winners(trials).items() if not missing[label]}
        best = None
        if all(label in winners for label in tuned):
            best = folder / BEST
            text = read_bytes(search.config, max_bytes=CONFIG_BYTES).decode()
            about = _about(search, [] if len(winners) == len(labels) else list(winners))
            write_atomically(best, best_config(text, search.experiment, winners, about))
    return Tuning(trials=trials, missing=sum(missing[label] for label in tuned), best=best)


def _about(search: Search, only: Sequence[str]) -> str:
    """Describe the search for the comment at the top of best.toml; ``only``: the tuned models, if not all."""
    plan, trials = search.plan, search.plan.trials
    repeated, several = "", len(search.seeds) > 1
    if several:
        which = f"The best {plan.finalists} of each model" if plan.finalists else "All"
        repeated = f"{which} were trained with the seeds {', '.join(map(str, search.seeds))}.\n"
    mean = "mean validation BLEU over seeds" if several else "validation BLEU"
    models = f"each of {', '.join(only)}" if len(only) > 1 else "".join(only) or "each model"
    space = ", ".join(f"{name} {dimension}" for name, dimension in plan.space.items())
    return (
        f"Made by attnbench tune: {models} got {trials} {'trial' if trials == 1 else 'trials'} of "
        f"{search.runs[0].train.max_updates} updates\n"
        f"with the same random draws (seed {plan.seed}) from: {space}.\n"
        f"{repeated}Kept is the trial with the highest {mean}; trials.jsonl holds all of them."
    )
