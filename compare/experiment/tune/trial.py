"""One trial of a search: train a model with drawn settings and measure it on the validation set."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compare.config.run import Run
from compare.experiment.build_trainer import build_trainer
from compare.experiment.prepare import PreparedData
from compare.experiment.tune.space import apply_settings
from compare.experiment.tune.trial_log import TrialResult
from compare.results.run_folder import RunFolder
from compare.system.hints import first_line
from compare.system.memory import is_out_of_memory
from compare.system.progress import Reporter
from compare.system.version import code_version
from compare.training.file_names import CHECKPOINTS
from compare.training.trainer import Trainer, TrainingDiverged
from compare.training.trainer_state import TrainerState
from data.text.control_characters import visible
from data.text.files import remove_leftovers


def run_trial(
    run: Run,
    number: int,
    settings: Mapping[str, Any],
    folder: Path,
    prepared: PreparedData,
    reporter: Reporter,
) -> TrialResult:
    """Train a model with ``settings``, from the start or from where a killed process left it.

    Args:
        run: the model as the experiment has it, with the updates of a trial.
        number: number of the trial.
        settings: values of the tuned settings.
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
    tuned = RunFolder(run=apply_settings(run, settings), folder=folder)
    trainer: Trainer | None = None
    status, reason = "done", None
    try:
        name = f"{run.label} trial {number}"
        with reporter.training(name, run.train.max_updates) as report:
            trainer, _ = build_trainer(tuned, prepared, report)
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
        trial=number,
        settings=dict(settings),
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
