"""Check an experiment: compare file hashes, and compute every figure again with the function that made it."""

import dataclasses
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from compare.analysis.summary import summarise
from compare.config.sections import run_name
from compare.decoding.translator import Translator
from compare.experiment.compute_result import compute_figures, unfinished_result
from compare.experiment.likelihood import force_decode
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run_model import build_trainer
from compare.report.result_table import render_views
from compare.results.columns import FIGURES
from compare.results.records import read_external, read_likelihoods
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import (
    REGISTRY,
    SUMMARY,
    Result,
    Summary,
    are_trials,
    of_budget,
    read_registry,
    read_results,
    setting_text,
    stored_summary,
    write_protection,
)
from compare.scoring import metric_of
from compare.system.device import Machine, set_numerics, tune_cpu
from compare.system.log import counting, track
from compare.system.messages import first_line
from compare.system.plugins import code_version, plugin_problem
from compare.training.checkpoints import WEIGHTS, load_weights
from compare.training.log import read_metrics
from compare.training.loss import TranslationLoss
from compare.training.trainer import Validator
from data.text import hash_decompressed, plain_or_gzip, read_lines
from data.vocabulary import load_pair

logger = logging.getLogger(__name__)

MEANS_TOLERANCE = 1e-5
"""Largest relative difference of means and intervals between two types of CPU."""


class ComparedValue(NamedTuple):
    """A recorded value, and the value that was computed again."""

    context: str
    """Name of the run, or of a file of the experiment."""
    name: str
    """Name of the figure, or path of the file in the run's folder."""
    recorded: Any
    recomputed: Any
    relative: float = 1e-9
    """Tolerated relative difference of floats, since sums may be taken in another order."""
    absolute: float = 0.0
    """Tolerated difference of floats."""

    @property
    def same(self) -> bool:
        """True if both values agree within the tolerances."""
        if isinstance(self.recorded, float) and isinstance(self.recomputed, float):
            return math.isclose(self.recorded, self.recomputed, rel_tol=self.relative, abs_tol=self.absolute)
        return bool(self.recorded == self.recomputed)

    def __str__(self) -> str:
        return f"{self.context}: {self.name}: recorded {self.recorded}, found {self.recomputed}"


class Gap(NamedTuple):
    """A subject that could not be checked."""

    subject: str
    run: str


Findings = Iterator[ComparedValue | Gap]


class CheckedRun(NamedTuple):
    """A recorded run, and its data, prepared again."""

    folder: RunFolder
    result: Result
    prepared: PreparedData | None
    """None if the corpus cannot be read."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.folder.name


class CheckResult(NamedTuple):
    """Result of checking an experiment."""

    findings: list[ComparedValue]
    notes: list[str]
    """One line per other code version that made the results."""
    not_checked: list[str]

    @property
    def differences(self) -> list[ComparedValue]:
        """The values that do not agree."""
        return [finding for finding in self.findings if not finding.same]

    @property
    def summary(self) -> str:
        """Number of comparisons and of differences, in one line."""
        return f"{len(self.findings)} figures and files compared, {len(self.differences)} differ"


def check_experiment(
    folder: str | Path, *, decode: int = 0, retrain: bool = False, data_root: str = ""
) -> CheckResult:
    """Compute the figures of an experiment again, and compare hashes, means and tables.

    Speeds are computed from their stored measurements.

    Args:
        folder: the folder of the experiment.
        decode: number of lines of each test set to translate again from the weights; validation scores and
            perplexities are then computed again too. 0: none.
        retrain: repeat the training of each run up to the first line of its log.
        data_root: the folder of the corpus; empty: that of each config.

    Raises:
        ValueError: no run is finished, the runs are trials, or a result or config cannot be read.
    """
    folder = Path(folder)
    results = read_results(folder)
    if not any(result.status != "unfinished" for result in results):
        raise ValueError(f"{folder} holds no finished run: nothing to check")
    if are_trials(results):
        raise ValueError(f"{folder} holds a search, whose trials read no test set: run its best.toml")
    if decode or retrain:
        tune_cpu()  # rounding must be that of the runs
    findings: list[ComparedValue | Gap] = []
    versions = set()
    problems = {result.run: plugin_problem(folder / result.run) for result in results}
    prepared: dict[object, PreparedData] = {}
    with TemporaryDirectory() as encoded:
        for result in track(results, "checking", "runs"):
            logger.info(f"checking {result.run}")
            path = folder / result.run
            if problem := problems[result.run]:
                findings += _catch(result.run, "hashes", check_hashes(path, result, {}))
                findings.append(Gap(f"anything but file hashes: {problem}", result.run))
            elif (path / "config.toml").is_file():
                run = RunFolder.read(path, data_root=data_root)
                versions.add((str(result.code_version), code_version(run.run.plugins)))
                data = None
                try:
                    data = prepare_again(run, Path(encoded), prepared)
                except OSError as error:
                    findings.append(Gap(f"data, batches and scores: {error}", run.name))
                except ValueError as error:
                    findings.append(ComparedValue(run.name, "data", "as config.toml says", str(error)))
                findings += _check_run(CheckedRun(run, result, data), decode, retrain=retrain)
            elif result.status == "unfinished":
                findings.append(Gap("a run that has not begun", result.run))
            else:
                findings.append(ComparedValue(result.run, "config.toml", "a file", "no such file"))
        findings += _check_registry(folder, results)
        if not any(problems.values()):  # tables and means need all runs
            summary = stored_summary(folder, of_budget(results))
            if (folder / SUMMARY).is_file():
                findings += _catch(SUMMARY, "content", _check_summary(folder, summary, data_root))
            for name, text in render_views(folder, results, summary).items():
                if (folder / name).is_file():
                    same = (folder / name).read_bytes() == text.encode()
                    content = "as the runs say" if same else "something else"
                    findings.append(ComparedValue(name, "content", "as the runs say", content))
    return CheckResult(
        findings=[finding for finding in findings if isinstance(finding, ComparedValue)],
        notes=[
            f"made by code {made}, checked by {checked}"
            for made, checked in sorted(versions)
            if made not in ("None", checked)
        ],
        not_checked=[
            *_group_by_subject(finding for finding in findings if isinstance(finding, Gap)),
            *_general_limits(decode, retrained=retrain),
        ],
    )


def _check_run(run: CheckedRun, decode: int, *, retrain: bool) -> Findings:
    yield from _catch(run.name, "hashes", check_hashes(run.folder.folder, run.result, run.folder.masks()))
    if (run.folder.folder / "result.json").is_file():
        yield from _catch(run.name, "figures", check_result(run))
    if run.result.status != "done":
        yield Gap(f"the figures of a run that is {run.result.status}", run.name)
    elif decode:
        yield from _catch(run.name, "weights", check_weights(run, decode))
    if retrain:
        yield from _catch(run.name, "training", check_training(run))


def _catch(context: str, name: str, findings: Findings) -> Findings:
    """Yield findings; an error that a damaged file causes is one more difference."""
    try:
        yield from findings
    except Exception as error:  # a damaged file can raise nearly anything
        problem = f"no {error}" if isinstance(error, KeyError) else first_line(error)
        yield ComparedValue(context, name, "readable", problem)


def _check_registry(folder: Path, results: Iterable[Result]) -> Findings:
    """Compare experiment.json with the run folders, the requested seeds and the hashes of the runs."""
    registry, by_name = read_registry(folder), {result.run: result for result in results}
    seeds_with_result = {(result.label, result.seed) for result in by_name.values()}
    missing = [
        run_name(label, seed)
        for label, seeds in registry.asked_seeds.items()
        for seed in seeds
        if (label, seed) not in seeds_with_result
    ]
    for name in dict.fromkeys([*missing, *by_name]):
        recorded = "listed" if name in registry.runs else "not listed"
        has_begun = (folder / name / "config.toml").is_file()
        yield ComparedValue(REGISTRY, f"runs, {name}", recorded, "listed" if has_begun else "no such folder")
    for name, result in by_name.items():
        for key in ("data_hash", "settings_hash"):
            if (value := getattr(result, key)) is not None:
                yield ComparedValue(REGISTRY, f"{key} of {name}", getattr(registry, key), value)


def _check_summary(folder: Path, stored: Summary | None, data_root: str) -> Findings:
    """Compare the stored summary with a new one; it is None if it does not belong to the runs."""
    computed = summarise(folder, data_root=data_root) if stored else None
    if stored is None or computed is None:
        if write_protection(folder):  # nothing renews it
            yield ComparedValue(SUMMARY, "results", "of other results", "of the runs in the folder")
        else:
            yield Gap("means and outcome, which are outdated (`attnbench table` renews them)", SUMMARY)
    elif stored.lacks_texts or computed.lacks_texts:
        yield Gap("means and outcome, because their texts cannot be read", SUMMARY)
    else:
        yield ComparedValue(SUMMARY, "outcome", stored.outcome, computed.outcome)
        for old, new in zip(stored.means, computed.means, strict=True):
            for name, value in old.items():
                if value is not None:  # a figure that a later version added is not a difference
                    context = f"{name} of {old['label']}"
                    yield ComparedValue(SUMMARY, context, value, new.get(name), MEANS_TOLERANCE)


def _group_by_subject(gaps: Iterable[Gap]) -> Iterator[str]:
    runs: dict[str, dict[str, None]] = {}
    for gap in gaps:
        runs.setdefault(gap.subject, {})[gap.run] = None
    for subject, names in runs.items():
        yield f"{subject} ({', '.join(names)})"


def _general_limits(decoded: int, *, retrained: bool) -> Iterator[str]:
    """Name checks that were not requested, and claims that files cannot prove."""
    if not decoded:
        yield (
            "translations, validation scores and perplexities against the weights: "
            "--decode N computes them again"
        )
    if not retrained:
        yield "the training log against the settings: --retrain repeats the first updates"
    yield "device, torch, threads, code version and measured times"
    yield "experiment.toml, the trials of a search, plots, reports, and log.txt"
    yield "consistent changes of several files"


# Checks of one run.


def prepare_again(folder: RunFolder, encoded: Path, cache: dict[object, PreparedData]) -> PreparedData:
    """Prepare the data of a run again, except for the vocabularies of a fine-tuned run.

    Args:
        folder: the run.
        encoded: folder for encoded splits.
        cache: data of earlier runs, by their settings; this function fills it.
    """
    run = folder.run
    inherited = load_pair(folder.folder) if run.train.init_from is not None else None
    sections = (run.data, run.vocabulary, run.regularization, run.train.batch_tokens, run.task)
    key = (*sections, inherited.content_hash if inherited else None)
    if key not in cache:
        cache[key] = prepare_data(run, encoded, vocabularies=inherited)
    return cache[key].for_seed(run.train.seed)


def check_hashes(folder: Path, result: Result, masks: dict[str, Path]) -> Findings:
    """Compare the recorded hash of each file with the file; attention masks may be outside the folder."""
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
"""Fields of a result that do not follow from config and data."""


def check_result(run: CheckedRun) -> Findings:
    """Compare every field of a result with the value that follows from config, data and files."""
    recorded, begun = run.result.flat(), unfinished_result(run.folder, run.prepared)
    values = {
        name: value
        for name, value in dataclasses.asdict(begun).items()
        if name in ("init_hash", "reproducible") or (value is not None and name not in NOT_DERIVED)
    }
    if run.result.status == "done" and run.prepared is not None:
        as_recorded = {name: getattr(run.result, name) for name in NOT_DERIVED}
        figures = compute_figures(run.folder, run.prepared)
        # ``recorded`` may have scores of test sets that the corpus lacks.
        values = dict.fromkeys(recorded) | dataclasses.replace(begun, **{**as_recorded, **figures}).flat()
    settings = {name: setting_text(value) for name, value in run.folder.run.settings().items()}
    values |= {name: settings.get(name) for name in run.result.settings}
    for name in sorted(begun.settings.keys() - run.result.settings.keys()):
        yield Gap(f"{name}, a default when the run was recorded", run.name)
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
        yield Gap(f"the segment scores of the external metric {name}; only their mean was checked", run.name)


LOSS_TOLERANCE, BLEU_TOLERANCE = 1e-3, 0.1
"""Largest relative difference of the validation loss, and difference of BLEU, between two machines."""
OTHER_LINES = 0.02
"""Largest share of translations that may differ; rounding can swap hypotheses of nearly equal score."""


def check_weights(run: CheckedRun, number: int) -> Findings:
    """Translate ``number`` lines of each test set again; compute validation scores and perplexities again."""
    if not run.folder.weights.exists():
        yield Gap("translations, because the weights are not in the folder", run.name)
        return
    if run.prepared is None:
        return
    if any(tensor.dtype == torch.bfloat16 for tensor in load_weights(run.folder.weights).values()):
        yield Gap("translations, because the weights were rounded to bf16 after translating", run.name)
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
    for test in prepared.corpus.tests:
        sources = prepared.corpus.splits[test].src
        recorded = read_lines(run.folder.output(test), allow_blank=True)
        size = min(len(sources), len(recorded))
        indices = [index * size // min(number, size) for index in range(min(number, size))]
        (translations,) = translator.translate_all([sources[index] for index in indices])
        findings = [
            ComparedValue(run.name, f"{test}.hyp, line {index + 1}", recorded[index], translation.text)
            for index, translation in zip(indices, translations, strict=True)
        ]
        yield from (finding for finding in findings if finding.same)
        different = [finding for finding in findings if not finding.same]
        subject = f"{len(different)} of {len(findings)} lines of {test}.hyp, with other translations here"
        if len(different) > math.ceil(OTHER_LINES * len(findings)):
            yield different[0]._replace(name=f"{different[0].name} ({subject})")
        elif different:
            yield Gap(f"{subject}: rounding can swap hypotheses of nearly equal score", run.name)


def _check_validation(run: CheckedRun, prepared: PreparedData, translator: Translator) -> Findings:
    settings, valid = run.folder.run, prepared.corpus.splits["valid"]
    criterion = TranslationLoss(translator.model, settings.train.label_smoothing).eval()
    scores = Validator(criterion, translator, settings, valid, prepared.valid)()
    (final,) = (line for line in read_metrics(run.folder.metrics) if line["kind"] == "final")
    name = "metrics.jsonl: {} of the final line, by the weights"
    yield ComparedValue(run.name, name.format("loss"), final["loss"], scores.loss, LOSS_TOLERANCE)
    yield ComparedValue(run.name, name.format("bleu"), final["bleu"], scores.bleu, absolute=BLEU_TOLERANCE)


def _check_likelihoods(run: CheckedRun, prepared: PreparedData, translator: Translator) -> Findings:
    if run.folder.likelihoods.exists():
        for test, recorded in read_likelihoods(run.folder.likelihoods).tests.items():
            pairs = prepared.corpus.splits[test]
            nll = force_decode(translator, pairs.src, pairs.tgt).sums.nll
            name = f"perplexity.json: nll of {test}, by the weights"
            yield ComparedValue(run.name, name, recorded.nll, nll, LOSS_TOLERANCE)


NLL_TOLERANCE, NORM_TOLERANCE = 2e-4, 1e-3
"""Largest relative differences of loss and gradient norm after about fifty updates on another type of CPU. We
saw 5e-5 of the loss between two CPUs, and at least 1e-3 between two seeds of a model of results/demo."""


class _LineLogged(Exception):
    """Signal that the first line of the training log is complete."""


def check_training(run: CheckedRun) -> Findings:
    """Repeat training up to the first line of the log, and compare its loss and gradient norm."""
    lines = read_metrics(run.folder.metrics) if run.folder.metrics.exists() else []
    first = next((line for line in lines if line["kind"] == "train"), None)
    if first is None or run.prepared is None:
        return
    train = run.folder.run.train
    if train.device != "cpu" or first.get("processes", 1) > 1 or train.init_from is not None:
        yield Gap("the first updates on a GPU, by several processes or from other weights", run.name)
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
