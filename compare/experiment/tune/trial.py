"""One trial of a search: train a model with drawn settings and measure it on the validation set."""

import logging
import shutil
from pathlib import Path

from compare.experiment.prepare import PreparedData
from compare.experiment.trainers import build_trainer
from compare.experiment.tune.journal import Journal
from compare.experiment.tune.plan import Trial
from compare.experiment.tune.space import apply_settings
from compare.experiment.tune.trial_log import TrialResult
from compare.results.run_folder import RunFolder
from compare.system.log import Reporter
from compare.system.measure import is_out_of_memory
from compare.system.messages import first_line
from compare.system.plugins import code_version
from compare.system.signals import lock_folder
from compare.training.checkpoints import TrainerState
from compare.training.serialization import CHECKPOINTS
from compare.training.trainer import Trainer, TrainingDiverged
from data.files import remove_leftovers
from data.text import visible

logger = logging.getLogger(__name__)


def finish_trial(
    trial: Trial, journal: Journal, prepared: PreparedData, reporter: Reporter, position: str = ""
) -> str:
    """Finish a trial and add it to the journal, unless it has ended; returns its status.

    Args:
        trial: the trial.
        journal: the journal of the search.
        prepared: the data, without test sets.
        reporter: shows the progress of training.
        position: what messages begin with.

    Raises:
        Locked: another process works on the trial.
        Interrupted: a signal arrived; the state is saved.
        ValueError: the saved state is damaged, or the settings of the model have changed since this process
            began.
    """
    folder = journal.folder_of(trial.key)
    with lock_folder(folder):
        journal.refuse_changed_settings(trial.run.label)
        if trial.key in journal.read():  # another process may have ended it since then
            return "already finished"
        name = f"{position}{trial.name}"
        logger.info(f"{name}: " + ", ".join(f"{key} {value}" for key, value in trial.settings.items()))
        result = run_trial(trial, folder, prepared, reporter)
        if result.reason:
            logger.error(f"{name}: {result.status}: {result.reason}")
        journal.add(result)
        remove_checkpoints(folder)
        return result.status


def run_trial(trial: Trial, folder: Path, prepared: PreparedData, reporter: Reporter) -> TrialResult:
    """Train a model with drawn settings, from the start or from where a killed process left it.

    Args:
        trial: the model and the settings.
        folder: where the trial keeps its metrics, and its checkpoints until it has ended.
        prepared: the data, without test sets.
        reporter: shows the progress of training.

    Returns:
        The result; divergence and lack of memory are results too.

    Raises:
        Interrupted: a signal arrived; the state is saved.
        ValueError: the saved state is damaged.
    """
    for place in (folder, folder / CHECKPOINTS):
        remove_leftovers(place)
    run = trial.run
    tuned = RunFolder(run=apply_settings(run, trial.settings), folder=folder)
    trainer: Trainer | None = None
    status, reason = "done", None
    try:
        with reporter.training(trial.name, run.train.max_updates) as report:
            trainer, _ = build_trainer(tuned, prepared.for_seed(run.train.seed), report)
            trainer.run()
    except TrainingDiverged as error:
        status, reason = "diverged", visible(str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        status, reason = "out of memory", visible(first_line(error))
    state, done = trainer.state if trainer else TrainerState(), status == "done"
    return TrialResult(
        label=run.label,
        trial=trial.number,
        seed=run.train.seed,
        settings=dict(trial.settings),
        status=status,
        bleu=state.best_bleu if done else None,
        loss=state.best_loss if done else None,
        best_update=state.best_update if done else None,
        updates=state.update,
        seconds=round(sum(state.seconds.values()), 3),
        code_version=code_version(run.plugins),
        reason=reason,
    )


def remove_checkpoints(folder: Path) -> None:
    """Delete the weights and the trainer state of an ended trial; its metrics stay."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
