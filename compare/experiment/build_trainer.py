"""Construction of the trainer of one run: the model from its seed, the loss, validation."""

from collections.abc import Callable

import torch

from compare.decoding.translator import Translator
from compare.experiment.initial_weights import load_initial_weights
from compare.experiment.prepare import PreparedData
from compare.experiment.task import task_of
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.system.distributed import SINGLE, Processes
from compare.system.numerics import set_numerics
from compare.system.progress import MetricsCallback
from compare.training.consistency import training_loss
from compare.training.file_names import CHECKPOINTS, STATE
from compare.training.trainer import Trainer
from compare.training.trainer_state import Validation


def build_trainer(
    folder: RunFolder,
    prepared: PreparedData,
    report: MetricsCallback,
    *,
    validate: Callable[[], Validation] | None = None,
    processes: Processes = SINGLE,
) -> tuple[Trainer, Translator]:
    """Build a model, and the trainer that continues where it was stopped.

    The weights are random, or those of ``[train] init_from``.

    Args:
        folder: the run, and the folder for the files of training.
        prepared: the data, with the batches of the run's seed.
        report: takes each line of the metrics.
        validate: measures the weights; by default on the validation set.
        processes: those that train the model together; each of them builds the same trainer.

    Returns:
        The trainer, and the translator of the same model, which has the chosen weights once the trainer
        has run.
    """
    run, device = folder.run, torch.device(folder.run.train.device)
    set_numerics(device, deterministic=run.train.deterministic)
    torch.manual_seed(run.train.seed)
    model = build(run.model.architecture, *prepared.vocabulary_sizes)
    if not (folder.folder / CHECKPOINTS / STATE).is_file():
        load_initial_weights(model, run.train)
    model = model.to(device)
    criterion = training_loss(model, run.train.label_smoothing, run.regularization)
    translator = Translator(model, prepared.vocabularies, run.decode, device, processes=processes)
    validate = validate or task_of(run).validator(
        criterion, translator, prepared.corpus.splits["valid"], prepared.valid, run.train
    )
    trainer = Trainer(
        criterion=criterion,
        train_batches=prepared.stream,
        validate=validate,
        train_config=run.train,
        optim_config=run.model.optim,
        run_folder=folder.folder,
        report=report,
        processes=processes,
    )
    return trainer, translator
