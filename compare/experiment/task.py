"""What the runs of an experiment are for, and all that differs between translating and language modelling.

Training, forced scoring and the timing of training are the same for every task.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from compare.config.run import Run
from compare.config.training_sections import TrainConfig
from compare.decoding.length_penalty import length_penalties
from compare.decoding.translator import Translator
from compare.experiment.select_penalty import select_penalty
from compare.models.registry import TaskName
from compare.results.run_folder import RunFolder
from compare.scoring.score import SystemScores, all_metrics, score_texts
from compare.training.loss import TranslationLoss
from compare.training.trainer_state import Validation
from compare.training.validation import LossValidator, Validator
from data.corpus import Corpus, Pairs
from data.encoded_split import EncodedSplit
from data.text.files import ensure_regular, write_atomically
from data.text.lines import read_lines

logger = logging.getLogger(__name__)


class Task(ABC):
    """Data, validation, test and figures of the runs of one task."""

    translates: bool
    """Whether the models search for translations, which are scored, timed and checked."""

    @abstractmethod
    def select_sides(self, split: EncodedSplit) -> EncodedSplit:
        """Return what the models read of an encoded split."""

    @abstractmethod
    def validator(
        self,
        criterion: TranslationLoss,
        translator: Translator,
        pairs: Pairs,
        split: EncodedSplit,
        train: TrainConfig,
    ) -> Callable[[], Validation]:
        """Build the measurement that chooses the weights; arguments as for ``Validator``."""

    @abstractmethod
    def decode_tests(self, folder: RunFolder, translator: Translator, corpus: Corpus) -> float | None:
        """Decode every test set once and keep what comes out; returns the seconds of decoding, if any."""

    @abstractmethod
    def score_tests(self, folder: RunFolder, corpus: Corpus) -> Mapping[str, SystemScores]:
        """Score what ``decode_tests`` has kept, by test set; nothing where nothing is decoded."""

    @abstractmethod
    def search_settings(self, run: Run) -> dict[str, Any]:
        """Return the fields of ``Result`` with settings of search that the config decides."""

    @abstractmethod
    def search_choice(self, folder: RunFolder) -> dict[str, Any]:
        """Return the fields of ``Result`` with settings of search that were chosen on validation."""

    @abstractmethod
    def required_files(self, folder: RunFolder, corpus: Corpus | None) -> set[str]:
        """Name the files, besides those of every run, that the figures of a finished run come from."""


class Translation(Task):
    """Weights are chosen by BLEU; test sets are translated once, with a length penalty chosen before."""

    translates = True

    def select_sides(self, split: EncodedSplit) -> EncodedSplit:
        """Return the split itself."""
        return split

    def validator(
        self,
        criterion: TranslationLoss,
        translator: Translator,
        pairs: Pairs,
        split: EncodedSplit,
        train: TrainConfig,
    ) -> Callable[[], Validation]:
        """Build a ``Validator``."""
        return Validator(criterion, translator, pairs, split, train.batch_tokens)

    def decode_tests(self, folder: RunFolder, translator: Translator, corpus: Corpus) -> float:
        """Choose the length penalty on validation, and translate every test set."""
        translator.penalty = select_penalty(folder, translator, corpus.splits["valid"])
        logger.info(f"{folder.run.label}: decoding {', '.join(corpus.tests)}")
        return translate_tests(translator, corpus, folder)

    def score_tests(self, folder: RunFolder, corpus: Corpus) -> Mapping[str, SystemScores]:
        """Score the translations of every test set by all metrics."""
        for test in corpus.tests:
            ensure_regular(folder.output(test))
        return {
            test: score_texts(
                read_lines(folder.output(test), allow_blank=True),
                corpus.splits[test].tgt,
                scoring=all_metrics(),
            )
            for test in corpus.tests
        }

    def search_settings(self, run: Run) -> dict[str, Any]:
        """Return beam size and limit of length."""
        return {"beam": run.decode.beam_size, "max_ratio": run.decode.max_ratio}

    def search_choice(self, folder: RunFolder) -> dict[str, Any]:
        """Return the length penalty."""
        penalty = folder.penalty()
        return {"length_penalty": penalty.alpha, "length_normalization": penalty.normalization}

    def required_files(self, folder: RunFolder, corpus: Corpus | None) -> set[str]:
        """Name the translations, and the choice of a length penalty if there was one."""
        names = set() if corpus is None else {f"{test}.hyp" for test in corpus.tests}
        return names | ({folder.selection.name} if len(length_penalties(folder.run.decode)) > 1 else set())


class LanguageModelling(Task):
    """Models of the target side alone, chosen and judged by the probability that they give to it."""

    translates = False

    def select_sides(self, split: EncodedSplit) -> EncodedSplit:
        """Return the targets alone, so that batches, token counts and FLOPs are of what is read."""
        return split.without_sources()

    def validator(
        self,
        criterion: TranslationLoss,
        translator: Translator,
        pairs: Pairs,
        split: EncodedSplit,
        train: TrainConfig,
    ) -> Callable[[], Validation]:
        """Build a ``LossValidator``."""
        return LossValidator(criterion, translator, split, train.batch_tokens)

    def decode_tests(self, folder: RunFolder, translator: Translator, corpus: Corpus) -> None:
        """Decode nothing: forced scoring, which every run ends with, is the test."""

    def score_tests(self, folder: RunFolder, corpus: Corpus) -> Mapping[str, SystemScores]:
        """Return nothing: the figures are perplexities."""
        return {}

    def search_settings(self, run: Run) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def search_choice(self, folder: RunFolder) -> dict[str, Any]:
        """Return nothing."""
        return {"length_penalty": None, "length_normalization": None}

    def required_files(self, folder: RunFolder, corpus: Corpus | None) -> set[str]:
        """Name the file of the likelihoods."""
        return {folder.likelihoods.name}


TASKS: dict[TaskName, Task] = {"translation": Translation(), "language modelling": LanguageModelling()}
"""All tasks by name."""


def task_of(run: Run) -> Task:
    """Return the task of a run."""
    return TASKS[run.task]


def translate_tests(translator: Translator, corpus: Corpus, folder: RunFolder) -> float:
    """Decode every test set once and keep the translations; returns the seconds of decoding."""
    seconds = 0.0
    for test in corpus.tests:
        start = time.perf_counter()
        hypotheses = translator.translate(corpus.splits[test].src)
        seconds += time.perf_counter() - start
        write_atomically(folder.plain_output(test), "".join(f"{line}\n" for line in hypotheses))
    return seconds
