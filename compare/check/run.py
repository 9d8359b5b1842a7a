"""Check of one run: files by their hashes, figures computed again; on request also translations and training.

The functions that made a figure compute it again, so that a file that has changed shows.
"""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from compare.decoding.translator import Translator
from compare.experiment.compute_result import compute_figures, unfinished_result
from compare.experiment.likelihood import score_translations
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run_model import build_trainer
from compare.results.columns import FIGURES
from compare.results.records import read_external, read_likelihoods
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import Result, setting_text
from compare.scoring import metric_of
from compare.system.device import Machine, set_numerics
from compare.system.log import counting
from compare.training.checkpoints import WEIGHTS
from compare.training.log import read_metrics
from compare.training.loss import TranslationLoss
from compare.training.trainer import Validator
from data.text import hash_decompressed, plain_or_gzip, read_lines
from data.vocabulary import load_pair


class ComparedValue(NamedTuple):
    """A recorded value, and the value that the files of the experiment give."""

    context: str
    """Name of the run's folder, or of a file of the experiment."""
    name: str
    """Name of the figure, or path of the file in the run's folder."""
    recorded: Any
    recomputed: Any
    relative: float = 1e-9
    """Largest relative difference of floats that are equal: sums may be taken in another order."""
    absolute: float = 0.0
    """Largest difference of floats that are equal."""

    @property
    def same(self) -> bool:
        """Whether both values agree, floats within one of the tolerances."""
        if isinstance(self.recorded, float) and isinstance(self.recomputed, float):
            return math.isclose(self.recorded, self.recomputed, rel_tol=self.relative, abs_tol=self.absolute)
        return bool(self.recorded == self.recomputed)

    def __str__(self) -> str:
        """Describe the values in one line."""
        return f"{self.context}: {self.name}: recorded {self.recorded}, found {self.recomputed}"


class Gap(NamedTuple):
    """Something that could not be checked of a run."""

    subject: str
    run: str
    """Name of the run's folder."""


Findings = Iterator[ComparedValue | Gap]


class CheckedRun(NamedTuple):
    """A run of the experiment, as recorded, and its data, prepared again."""

    folder: RunFolder
    result: Result
    prepared: PreparedData | None
    """Corpus, vocabularies and batches by the run's config; None where the corpus cannot be read."""

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.name


def prepare_again(folder: RunFolder, encoded: Path, cache: dict[object, PreparedData]) -> PreparedData:
    """Return the data that the settings of a run describe.

    The vocabularies are built again from the training split, unless the run started from the weights of
    another one, whose vocabularies it has.

    Args:
        folder: the run.
        encoded: folder of the encoded splits.
        cache: the data of the runs read before, by their settings; it is filled.

    Raises:
        ValueError, OSError: the corpus cannot be read or used.
    """
    run = folder.run
    inherited = load_pair(folder.folder) if run.train.init_from is not None else None
    sections = (run.data, run.vocabulary, run.regularization, run.train.batch_tokens, run.task)
    key = (*sections, inherited.content_hash if inherited else None)
    if key not in cache:
        cache[key] = prepare_data(run, encoded, vocabularies=inherited)
    return cache[key].for_seed(run.train.seed)


# Files by their hashes, and the figures of the result.


def check_hashes(folder: Path, result: Result, masks: dict[str, Path]) -> Findings:
    """Compare the recorded hash of each file with the file.

    Weights that are not there are no difference: published folders leave them out.

    Args:
        folder: the folder of the run.
        result: its recorded result.
        masks: files that may be elsewhere, by name.
    """
    for name, recorded in sorted(result.files.items()):
        path = masks.get(name, plain_or_gzip(folder / name))
        if path.is_file():
            yield ComparedValue(result.run, name, recorded, hash_decompressed(path))
        elif name == WEIGHTS:
            yield Gap("the hash of the weights, which are not in the folder", result.run)
        else:
            yield ComparedValue(result.run, name, recorded, "no such file")


NOT_DERIVED = (
    *(item.name for item in dataclasses.fields(Machine)),
    *("recurrent_precision", "code_version", "status", "reason", "settings", "tests", "scores", "files"),
)
"""Fields of a result that has begun which config and data do not determine."""


def check_result(run: CheckedRun) -> Findings:
    """Compare every field of a run's result with its value by config, data and files.

    Without the corpus, only what follows from the config is compared.
    """
    recorded, begun = run.result.flat(), unfinished_result(run.folder, run.prepared)
    values = {
        name: value
        for name, value in dataclasses.asdict(begun).items()
        if name in ("init_hash", "reproducible") or (value is not None and name not in NOT_DERIVED)
    }
    if run.result.status == "done" and run.prepared is not None:
        as_recorded = {name: getattr(run.result, name) for name in NOT_DERIVED}
        figures = compute_figures(run.folder, run.prepared)
        # ``recorded`` has the scores of test sets that the corpus does not have, too.
        values = dict.fromkeys(recorded) | dataclasses.replace(begun, **{**as_recorded, **figures}).flat()
    written = {name: setting_text(value) for name, value in run.folder.run.settings().items()}
    values |= {name: written.get(name) for name in run.result.settings}
    for name in begun.settings.keys() - run.result.settings.keys():
        yield Gap(f"{name}, which was a default when the run was recorded", run.name)
    for name, value in values.items():
        metric = metric_of(name)
        endings = (f"_{test}" for test in run.result.tests if name.endswith(f"_{test}"))
        figure = FIGURES.get(name.removesuffix(next(endings, "")))
        is_new = figure.added if figure else metric is not None and metric.name not in FIGURES
        if recorded.get(name) is None and value is not None and is_new:
            yield Gap(f"{name}, which was added later", run.name)
        else:
            yield ComparedValue(run.name, name, recorded.get(name), value)
    for name in sorted({name for metrics in read_external(run.folder.external).values() for name in metrics}):
        yield Gap(f"the segment scores of {name}, an external metric: only their mean", run.name)


# Translations, validation scores and likelihoods by the weights.


LOSS_TOLERANCE, BLEU_TOLERANCE = 1e-3, 0.1
"""Largest relative difference of the validation loss, and difference of BLEU, between two machines."""
OTHER_LINES = 0.02
"""Largest share of lines that may be translated otherwise: near ties change places with the rounding."""


def check_weights(run: CheckedRun, number: int) -> Findings:
    """Translate lines again from the weights; compute validation scores and test perplexities again.

    Args:
        run: the run.
        number: lines of each test set, evenly spaced.
    """
    if not run.folder.weights.exists():
        yield Gap("translations by the weights, which are not in the folder", run.name)
        return
    if run.prepared is None:
        return
    train = run.folder.run.train
    device = train.device if torch.cuda.is_available() else "cpu"
    set_numerics(torch.device(device), deterministic=train.deterministic)
    translator = load_model(run.folder.folder, device)
    with counting("sentences") as translator.progress:
        if run.folder.run.translates:
            yield from list(_check_lines(run, run.prepared, translator, number))
        yield from list(_check_validation(run, run.prepared, translator))
    yield from list(_check_likelihoods(run, run.prepared, translator))


def _check_lines(run: CheckedRun, prepared: PreparedData, translator: Translator, number: int) -> Findings:
    """Translate ``number`` lines of each test set again, evenly spaced, and compare them."""
    for test in prepared.corpus.tests:
        sources = prepared.corpus.splits[test].src
        recorded = read_lines(run.folder.output(test), allow_blank=True)
        size = min(len(sources), len(recorded))
        indices = [index * size // min(number, size) for index in range(min(number, size))]
        lines = translator.translate([sources[index] for index in indices])
        findings = [
            ComparedValue(run.name, f"{test}.hyp, line {index + 1}", recorded[index], line)
            for index, line in zip(indices, lines, strict=True)
        ]
        yield from (finding for finding in findings if finding.same)
        different = [finding for finding in findings if not finding.same]
        subject = f"{len(different)} of {len(findings)} lines of {test}.hyp, translated otherwise here"
        if len(different) > math.ceil(OTHER_LINES * len(findings)):
            yield different[0]._replace(name=f"{different[0].name} ({subject})")
        elif different:
            yield Gap(f"{subject}: nearly equal scores may change places", run.name)


def _check_validation(run: CheckedRun, prepared: PreparedData, translator: Translator) -> Findings:
    """Compare the scores of the weights on the validation set with the final line of the log."""
    settings, valid = run.folder.run, prepared.corpus.splits["valid"]
    criterion = TranslationLoss(translator.model, settings.train.label_smoothing).eval()
    scores = Validator(criterion, translator, settings, valid, prepared.valid)()
    (final,) = (line for line in read_metrics(run.folder.metrics) if line["kind"] == "final")
    name = "metrics.jsonl: {} of the final line, by the weights"
    yield ComparedValue(run.name, name.format("loss"), final["loss"], scores.loss, LOSS_TOLERANCE)
    yield ComparedValue(run.name, name.format("bleu"), final["bleu"], scores.bleu, absolute=BLEU_TOLERANCE)


def _check_likelihoods(run: CheckedRun, prepared: PreparedData, translator: Translator) -> Findings:
    """Compute the likelihoods of perplexity.json again."""
    if run.folder.likelihoods.exists():
        for test, recorded in read_likelihoods(run.folder.likelihoods).tests.items():
            pairs = prepared.corpus.splits[test]
            nll = score_translations(translator, pairs.src, pairs.tgt).sums.nll
            name = f"perplexity.json: nll of {test}, by the weights"
            yield ComparedValue(run.name, name, recorded.nll, nll, LOSS_TOLERANCE)


# The first updates of training again, which need no weights.


NLL_TOLERANCE, NORM_TOLERANCE = 2e-4, 1e-3
"""Largest relative differences of loss and gradient norm after some fifty updates on another processor; 5e-5
of the loss was seen between two, and 1e-3 or more between two seeds of a model of results/demo."""


class _LineLogged(Exception):
    """The first line of the training log is complete."""


def check_training(run: CheckedRun) -> Findings:
    """Train up to the first line of the log again, and compare its loss and gradient norm.

    Nearly every setting of training changes them: dropout, label smoothing, seed, optimizer, precision.
    """
    lines = read_metrics(run.folder.metrics) if run.folder.metrics.exists() else []
    first = next((line for line in lines if line["kind"] == "train"), None)
    if first is None or run.prepared is None:
        return
    train = run.folder.run.train
    if train.device != "cpu" or first.get("processes", 1) > 1 or train.init_from is not None:
        yield Gap(
            "the first updates of training on a GPU, by several processes or from other weights", run.name
        )
        return
    again: dict[str, Any] = {}

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "train":
            again.update(line)
            raise _LineLogged

    with TemporaryDirectory() as folder:
        copy = dataclasses.replace(run.folder, folder=Path(folder))
        trainer, _ = build_trainer(copy, run.prepared, report)
        with suppress(_LineLogged):
            trainer.run()
    for name, tolerance in (("nll", NLL_TOLERANCE), ("grad_norm", NORM_TOLERANCE)):
        context = f"metrics.jsonl: {name} of update {first['update']}, trained again"
        yield ComparedValue(run.name, context, first[name], again[name], tolerance)
