"""The trainer of a run, and runs that several processes train together."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from compare.decoding.translator import Translator
from compare.experiment.prepare import PreparedData, load_initial_weights, sides, training_batches
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.system.device import set_numerics
from compare.system.distributed import SINGLE, Processes
from compare.system.log import MetricsCallback
from compare.training.loss import TranslationLoss
from compare.training.serialization import CHECKPOINTS, STATE
from compare.training.trainer import Trainer
from compare.training.validation import Validator
from data.corpus import Corpus, Pairs
from data.encode import open_split
from data.vocabulary import VocabularyPair

logger = logging.getLogger(__name__)


def build_trainer(
    folder: RunFolder,
    prepared: PreparedData,
    report: MetricsCallback,
    processes: Processes = SINGLE,
) -> tuple[Trainer, Translator]:
    """Build a model, and the trainer that continues where it was stopped.

    The weights are random, by the seed of the run, or those of ``[train] init_from``.

    Args:
        folder: the run, and the folder for the files of training.
        prepared: the data, with the batches of the run's seed.
        report: takes each line of the metrics.
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
    criterion = TranslationLoss(model, run.train.label_smoothing, run.regularization)
    translator = Translator(model, prepared.vocabularies, run.decode, device, processes=processes)
    pairs = prepared.corpus.splits["valid"]
    trainer = Trainer(
        criterion=criterion,
        train_batches=prepared.stream,
        validate=Validator(criterion, translator, pairs, prepared.valid, run.train.batch_tokens),
        train_config=run.train,
        optim_config=run.model.optim,
        run_folder=folder.folder,
        report=report,
        processes=processes,
    )
    return trainer, translator


# Runs that several processes train together: process 0 announces each of them, the others take part.


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """A run to train together, as process 0 sends it to the others; they read no text."""

    folder: RunFolder
    vocabularies: VocabularyPair
    train: Path
    """Folder of the encoded training set."""
    valid: Path
    """Folder of the encoded validation set."""
    batch_hash: str

    def open_data(self) -> PreparedData:
        """Map the data of the run, without its text."""
        run = self.folder.run
        split = sides(open_split(self.train), run)
        return PreparedData(
            corpus=Corpus(name="", src_lang="", tgt_lang="", splits={"valid": Pairs((), ())}),
            vocabularies=self.vocabularies,
            train=split,
            valid=sides(open_split(self.valid), run),
            stream=training_batches(split, self.vocabularies, run),
            batch_hash=self.batch_hash,
        )


@contextmanager
def announced(folder: RunFolder, prepared: PreparedData, processes: Processes) -> Iterator[None]:
    """Let all processes train a run together, in a block in which process 0 does what ``take_part`` does.

    Args:
        folder: the run.
        prepared: its data, encoded in a folder that all processes see.
        processes: the processes; one alone has nobody to announce the run to.

    Raises:
        ValueError: the processes cannot use the device of the run.
        ConnectionError: another process has ended.
    """
    if processes.size == 1:
        yield
        return
    if prepared.train.folder is None or prepared.valid.folder is None:
        raise ValueError("only data in files can be read by several processes")
    announcement = Announcement(
        folder=replace(folder, folder=folder.folder.resolve()),
        vocabularies=prepared.vocabularies,
        train=prepared.train.folder.resolve(),
        valid=prepared.valid.folder.resolve(),
        batch_hash=prepared.batch_hash,
    )
    with processes.task():
        processes.broadcast(announcement)
        processes.use_device(folder.run.train.device)
        logger.info(
            f"{folder.run.label}: {processes.size} processes on {processes.devices} devices "
            f"of {processes.nodes} hosts train together"
        )
        processes.gather(lambda: None)  # the others open the data
        yield


def take_part(processes: Processes) -> None:
    """Train with process 0 each run that it announces, until it dismisses the others.

    Raises:
        ConnectionError: another process has ended.
    """
    announcement: Announcement | None
    while (announcement := processes.broadcast(None)) is not None:
        try:
            with processes.task():
                _train_announced(announcement, processes)
        except Exception:
            if not processes.together:
                raise


def _train_announced(announcement: Announcement, processes: Processes) -> None:
    processes.use_device(announcement.folder.run.train.device)
    opened: list[PreparedData] = []
    processes.gather(lambda: opened.append(announcement.open_data()))
    trainer, translator = build_trainer(announcement.folder, opened[0], lambda _: None, processes)
    trainer.run()
    translator.lead(lambda: None)
