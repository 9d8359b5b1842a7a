"""Checks that compute with the models: decoding with the weights, and the first updates of training again."""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from compare.check.invariants import CheckedRun, ComparedValue, Findings, Gap, join_differences
from compare.decoding.search import length_penalties
from compare.decoding.translator import Translator
from compare.experiment.likelihood import score_translations
from compare.experiment.prepare import PreparedData
from compare.experiment.run_model import build_trainer, measure_penalties
from compare.results.records import read_likelihoods, read_selection, read_speed
from compare.results.run_folder import load_model
from compare.system.device import device_name, set_numerics
from compare.system.log import counting
from compare.system.messages import first_line
from compare.system.plugins import code_version
from compare.training.loss import TranslationLoss
from compare.training.trainer import TrainingDiverged, Validator
from data.text import read_lines

LOSS_TOLERANCE, BLEU_TOLERANCE = 1e-3, 0.1
"""Largest relative difference of the validation loss, and difference of BLEU, between two machines."""
LENGTH_TOLERANCE = 5e-3
"""Largest relative difference of length ratios between two machines."""
OTHER_LINES = 0.02
"""Largest share of lines that another machine or code may translate otherwise: near ties change places."""


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
    try:
        set_numerics(torch.device(device), deterministic=train.deterministic)
        translator = load_model(run.folder.folder, device)
        with counting("sentences") as translator.progress:
            if run.folder.run.translates:
                yield from list(_check_lines(run, run.prepared, translator, number))
            yield from list(_check_validation(run, run.prepared, translator))
        yield from list(_check_likelihoods(run, run.prepared, translator))
    except RuntimeError as error:  # of torch: the weights compute nothing finite, or lack memory
        yield ComparedValue(run.name, "translations by the weights", "done", first_line(error))


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
        different = sum(not finding.same for finding in findings)
        if _rounds_alike(run, translator) or different > math.ceil(OTHER_LINES * len(findings)):
            yield from join_differences(findings)
            continue
        yield from (finding for finding in findings if finding.same)
        if different:
            subject = f"{different} of {len(findings)} lines of {test}.hyp, translated otherwise here"
            yield Gap(f"{subject}: machine or code is not that of the run", run.name)


def _check_validation(run: CheckedRun, prepared: PreparedData, translator: Translator) -> Findings:
    """Compare the scores of the weights on the validation set with log and choice of the length penalty."""
    settings, valid = run.folder.run, prepared.corpus.splits["valid"]
    if run.final is not None:
        criterion = TranslationLoss(translator.model, settings.train.label_smoothing).eval()
        found = Validator(criterion, translator, settings, valid, prepared.valid)()
        name = "metrics.jsonl: {} of the final line, by the weights"
        loss, bleu = run.final["loss"], run.final["bleu"]
        yield ComparedValue(run.name, name.format("loss"), loss, found.loss, LOSS_TOLERANCE)
        yield ComparedValue(run.name, name.format("bleu"), bleu, found.bleu, absolute=BLEU_TOLERANCE)
    penalties = length_penalties(settings.decode)
    if len(penalties) == 1:
        return
    grid = read_selection(run.folder.selection, penalties).grid
    for old, new in zip(grid, measure_penalties(settings, translator, valid, penalties), strict=True):
        name = f"selection.json: {{}} of length penalty {old.penalty}, by the weights"
        yield ComparedValue(run.name, name.format("bleu"), old.bleu, new.bleu, absolute=BLEU_TOLERANCE)
        yield ComparedValue(
            run.name, name.format("length_ratio"), old.length_ratio, new.length_ratio, LENGTH_TOLERANCE
        )


def _check_likelihoods(run: CheckedRun, prepared: PreparedData, translator: Translator) -> Findings:
    """Compute the likelihoods of perplexity.json again."""
    if run.folder.likelihoods.exists():
        for test, recorded in read_likelihoods(run.folder.likelihoods).tests.items():
            pairs = prepared.corpus.splits[test]
            found = score_translations(translator, pairs.src, pairs.tgt).sums
            name = f"perplexity.json: nll of {test}, by the weights"
            yield ComparedValue(run.name, name, recorded.nll, found.nll, LOSS_TOLERANCE)


def _rounds_alike(run: CheckedRun, translator: Translator) -> bool:
    """Return whether device, torch, threads and code are those of the run's decoding."""
    result, code = run.result, code_version(run.folder.run.plugins)
    then = read_speed(run.folder.speed).decoded_on or result  # the result has those of the timings
    here = (device_name(translator.device), torch.__version__, torch.get_num_threads(), code)
    return here == (then.device, then.torch, then.threads, result.code_version)


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
    first = next((line for line in run.lines if line["kind"] == "train"), None)
    if first is None or run.prepared is None:
        return
    train = run.folder.run.train
    if train.device != "cpu" or first.get("processes", 1) > 1 or train.init_from is not None:
        yield Gap(
            "the first updates of training on a GPU, by several processes or from other weights", run.name
        )
        return
    found: dict[str, Any] = {}

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "train":
            found.update(line)
            raise _LineLogged

    with TemporaryDirectory() as folder:
        trainer, _ = build_trainer(replace(run.folder, folder=Path(folder)), run.prepared, report)
        try:
            trainer.run()
        except _LineLogged:
            pass
        except (TrainingDiverged, RuntimeError) as error:
            context = "metrics.jsonl: the first updates, trained again"
            yield ComparedValue(run.name, context, "done", first_line(error))
            return
    for name, tolerance in (("nll", NLL_TOLERANCE), ("grad_norm", NORM_TOLERANCE)):
        context = f"metrics.jsonl: {name} of update {first['update']}, trained again"
        yield ComparedValue(run.name, context, first[name], found[name], tolerance)
