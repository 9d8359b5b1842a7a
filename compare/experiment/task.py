"""What the runs of an experiment are for, and all that differs between translating and language modelling.

Training, forced scoring and the timing of training are the same for every task.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compare.config.run import Run
from compare.config.sections import TrainConfig
from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.decoding.translator import Translator
from compare.models.registry import TaskName
from compare.results.records import GridPoint, Selection, choose, read_selection, write_record
from compare.results.run_folder import RunFolder
from compare.scoring.score import SystemScores, all_metrics, bleu_and_length_ratio, score_texts
from compare.training.checkpoints import Validation
from compare.training.loss import TranslationLoss
from compare.training.validation import LossValidator, Validator
from data.corpus import Corpus, Pairs
from data.encode import EncodedSplit
from data.files import ensure_regular, hash_file, write_atomically
from data.text import read_lines

# The choice of a run's length penalty: every model's by the same procedure, on validation alone.


logger = logging.getLogger(__name__)


def select_penalty(folder: RunFolder, translator: Translator, valid: Pairs) -> LengthPenalty:
    """Choose the length penalty by ``choose``, and write selection.json.

    One beam search of the validation set serves all penalties. A choice that an earlier call made with the
    same weights is kept.

    Args:
        folder: the run, with its chosen weights.
        translator: the model with these weights.
        valid: the validation set.

    Raises:
        ValueError: selection.json is damaged.
    """
    run, penalties = folder.run, length_penalties(folder.run.decode)
    if len(penalties) == 1:
        return penalties[0]
    weights = hash_file(folder.weights)
    if folder.selection.exists():
        kept = read_selection(folder.selection, penalties)
        if kept.weights == weights:
            return kept.penalty
    logger.info(f"{run.label}: choosing one of {len(penalties)} length penalties on the validation set")
    grid = _search_grid(translator, penalties, valid)
    selection = Selection(grid=grid, chosen=choose(grid), weights=weights)
    point = grid[selection.chosen]
    logger.info(
        f"{run.label}: length penalty {point.penalty}: validation BLEU {point.bleu:.1f} "
        f"(best {max(other.bleu for other in grid):.1f}), length ratio {point.length_ratio:.3f}"
    )
    if point.length_penalty == max(each.alpha for each in penalties):
        logger.warning(
            f"{run.label}: this is the largest length penalty of the grid: larger ones may be better"
        )
    write_record(folder.selection, selection)
    return selection.penalty


def _search_grid(translator: Translator, penalties: Sequence[LengthPenalty], valid: Pairs) -> list[GridPoint]:
    """Translate the validation set with every length penalty, in one beam search, and score it."""
    grid = []
    for penalty, texts in zip(penalties, translator.translate_all(valid.src, penalties), strict=True):
        bleu, ratio = bleu_and_length_ratio(texts, valid.tgt)
        grid.append(
            GridPoint(
                normalization=penalty.normalization,
                length_penalty=penalty.alpha,
                bleu=bleu,
                length_ratio=ratio,
            )
        )
    return grid


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
