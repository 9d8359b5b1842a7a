"""Runs that several processes train together: process 0 announces each of them, the others take part."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compare.experiment.build_trainer import build_trainer
from compare.experiment.prepare import PreparedData, training_batches
from compare.experiment.task import task_of
from compare.results.run_folder import RunFolder
from compare.system.distributed import Processes
from compare.training.trainer_state import Validation
from data.corpus import Corpus, Pairs
from data.encode import open_split
from data.vocabulary import VocabularyPair

logger = logging.getLogger(__name__)

Validate = Callable[[], Validation]


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
    validate: Validate | None
    """As for ``build_trainer``; without the validation set, no test set is translated either."""

    def open_data(self) -> PreparedData:
        """Map the data of the run, without its text."""
        task = task_of(self.folder.run)
        split = task.select_sides(open_split(self.train))
        return PreparedData(
            corpus=Corpus(name="", src_lang="", tgt_lang="", splits={"valid": Pairs((), ())}),
            vocabularies=self.vocabularies,
            train=split,
            valid=task.select_sides(open_split(self.valid)),
            stream=training_batches(split, self.vocabularies, self.folder.run),
            batch_hash=self.batch_hash,
        )


@contextmanager
def announced(
    folder: RunFolder, prepared: PreparedData, processes: Processes, *, validate: Validate | None = None
) -> Iterator[None]:
    """Let all processes train a run together, in a block in which process 0 does what ``take_part`` does.

    Args:
        folder: the run.
        prepared: its data, encoded in a folder that all processes see.
        processes: the processes; one alone has nobody to announce the run to.
        validate: as for ``build_trainer``.

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
        validate=validate,
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
                _train(announcement, processes)
        except Exception:
            if not processes.together:
                raise


def _train(announcement: Announcement, processes: Processes) -> None:
    processes.use_device(announcement.folder.run.train.device)
    opened: list[PreparedData] = []
    processes.gather(lambda: opened.append(announcement.open_data()))
    trainer, translator = build_trainer(
        announcement.folder,
        opened[0],
        _report_nothing,
        validate=announcement.validate,
        processes=processes,
    )
    trainer.run()
    if announcement.validate is None:
        translator.lead(_search_only)


def _report_nothing(_: dict[str, Any]) -> None:
    """Leave the report to process 0."""


def _search_only() -> None:
    """Leave everything but search to process 0."""
