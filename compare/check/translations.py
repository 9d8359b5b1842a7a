"""Check of translations: against the references, and against what the weights translate now."""

import math
from collections.abc import Iterator

import torch

from compare.check.run_data import CheckedRun, ComparedValue, Gap, join_differences
from compare.decoding.length_penalty import length_penalties
from compare.experiment.likelihood import score_translations
from compare.experiment.prepare import PreparedData
from compare.experiment.task import task_of
from compare.results.records import read_likelihoods, read_selection, read_speed
from compare.results.trained_model import load_model
from compare.scoring.score import bleu_and_length_ratio
from compare.system.device import device_name, pick_device
from compare.system.messages import first_line
from compare.system.plugins import code_version
from compare.training.loss import TranslationLoss
from data.text import read_lines

BAD_BLEU = 50.0
"""Validation BLEU below which no model translates a whole test set without a fault."""
COPIED = 0.9
"""Share of lines equal to their references from which such a model has not made the translations."""
LOSS_TOLERANCE, BLEU_TOLERANCE = 1e-3, 0.1
"""Largest relative difference of the validation loss, and difference of BLEU, between two machines."""
LENGTH_TOLERANCE = 5e-3
"""Largest relative difference of length ratios between two machines."""
OTHER_LINES = 0.02
"""Largest share of lines that another machine or code may translate otherwise: near ties change places."""


def check_against_references(run: CheckedRun) -> Iterator[ComparedValue]:
    """Report translations that are the references, nearly all, of a model not so good on validation."""
    if run.prepared is None or run.final is None or not (run.final.get("bleu") or 0) < BAD_BLEU:
        return
    for test in run.prepared.corpus.tests:
        try:
            lines = read_lines(run.folder.output(test), allow_blank=True)
        except (ValueError, OSError):
            continue  # reported by the check of the figures
        references = run.prepared.corpus.splits[test].tgt
        equal = sum(line == reference for line, reference in zip(lines, references, strict=False))
        copied = equal >= COPIED * len(references)
        found = f"the references, with validation BLEU {run.final['bleu']:.1f}" if copied else "translations"
        yield ComparedValue(run.name, f"{test}.hyp", "translations", found)


def check_weights(run: CheckedRun, number: int) -> Iterator[ComparedValue | Gap]:
    """Translate lines again from the weights; compute validation scores and test perplexities again.

    Args:
        run: the run.
        number: lines of each test set, evenly spaced.
    """
    if not run.folder.weights.exists():
        yield Gap("translations by the weights, which are not in the folder", run.name)
    elif run.prepared is not None:
        try:
            check = _WeightsCheck(run, run.prepared)
            if task_of(run.folder.run).translates:
                yield from [*check.check_lines(number)]
            yield from [*check.check_validation(), *check.check_selection(), *check.check_perplexity()]
        except RuntimeError as error:  # of torch: the weights compute nothing finite, or lack memory
            yield ComparedValue(run.name, "translations by the weights", "done", first_line(error))


class _WeightsCheck:
    """Check of one run's translations and validation scores by its weights."""

    def __init__(self, run: CheckedRun, prepared: PreparedData) -> None:
        """Load the model.

        Raises:
            ValueError: the weights are missing, damaged, or not those of the result.
        """
        device = run.folder.run.train.device
        self.run, self.prepared = run, prepared
        self.device = _device_or_cpu(device)
        self.translator = load_model(run.folder.folder, device=str(self.device))

    def check_lines(self, number: int) -> Iterator[ComparedValue | Gap]:
        """Translate ``number`` lines of each test set again, evenly spaced, and compare them."""
        for test in self.prepared.corpus.tests:
            sources = self.prepared.corpus.splits[test].src
            recorded = read_lines(self.run.folder.output(test), allow_blank=True)
            size = min(len(sources), len(recorded))
            indices = [index * size // min(number, size) for index in range(min(number, size))]
            lines = self.translator.translate([sources[index] for index in indices])
            findings = [
                ComparedValue(self.run.name, f"{test}.hyp, line {index + 1}", recorded[index], line)
                for index, line in zip(indices, lines, strict=True)
            ]
            different = sum(not finding.same for finding in findings)
            if self._rounds_alike() or different > math.ceil(OTHER_LINES * len(findings)):
                yield from join_differences(findings)
                continue
            yield from (finding for finding in findings if finding.same)
            if different:
                subject = f"{different} of {len(findings)} lines of {test}.hyp, translated otherwise here"
                yield Gap(f"{subject}: machine or code is not that of the run", self.run.name)

    def check_validation(self) -> Iterator[ComparedValue]:
        """Compare loss and BLEU of the weights on the validation set with the final line of the log."""
        if self.run.final is None:
            return
        train = self.run.folder.run.train
        criterion = TranslationLoss(self.translator.model, train.label_smoothing).eval()
        validate = task_of(self.run.folder.run).validator(
            criterion, self.translator, self.prepared.corpus.splits["valid"], self.prepared.valid, train
        )
        found = validate()
        name = "metrics.jsonl: {} of the final line, by the weights"
        recorded = self.run.final
        yield ComparedValue(self.run.name, name.format("loss"), recorded["loss"], found.loss, LOSS_TOLERANCE)
        bleu = found.bleu
        if bleu is not None and recorded["bleu"] is not None:
            bleu = recorded["bleu"] if abs(recorded["bleu"] - bleu) <= BLEU_TOLERANCE else bleu
        yield ComparedValue(self.run.name, name.format("bleu"), recorded["bleu"], bleu)

    def check_selection(self) -> Iterator[ComparedValue]:
        """Search the validation set again with every length penalty of the grid, in one beam search."""
        penalties = length_penalties(self.run.folder.run.decode)
        if len(penalties) == 1:
            return
        valid = self.prepared.corpus.splits["valid"]
        grid = read_selection(self.run.folder.selection, penalties).grid
        for point, texts in zip(grid, self.translator.translate_all(valid.src, penalties), strict=True):
            bleu, length_ratio = bleu_and_length_ratio(texts, valid.tgt)
            name = f"selection.json: {{}} of length penalty {point.penalty}, by the weights"
            close = abs(point.bleu - bleu) <= BLEU_TOLERANCE
            yield ComparedValue(self.run.name, name.format("bleu"), point.bleu, point.bleu if close else bleu)
            yield ComparedValue(
                self.run.name,
                name.format("length_ratio"),
                point.length_ratio,
                length_ratio,
                LENGTH_TOLERANCE,
            )

    def check_perplexity(self) -> Iterator[ComparedValue]:
        """Compute the likelihood of the references again."""
        path = self.run.folder.likelihoods
        if not path.exists():
            return
        for test, recorded in read_likelihoods(path).tests.items():
            pairs = self.prepared.corpus.splits[test]
            found = score_translations(self.translator, pairs.src, pairs.tgt).sums
            name = f"{path.name}: nll of {test}, by the weights"
            yield ComparedValue(self.run.name, name, recorded.nll, found.nll, LOSS_TOLERANCE)

    def _rounds_alike(self) -> bool:
        """Return whether device, torch, threads and code are those of the run's decoding."""
        result, code = self.run.result, code_version(self.run.folder.run.plugins)
        then = read_speed(self.run.folder.speed).decoded_on or result  # the result has those of the timings
        here = (device_name(self.device), torch.__version__, torch.get_num_threads(), code)
        return here == (then.device, then.torch, then.threads, result.code_version)


def _device_or_cpu(name: str) -> torch.device:
    """Return the device that a run was trained on, or the CPU where this machine lacks it."""
    try:
        return pick_device(name)
    except ValueError:
        return torch.device("cpu")
