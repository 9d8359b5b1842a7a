"""Check an experiment: compute every figure again with the functions that made it."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compare.analysis.summary import summarise
from compare.check.run import (
    CheckedRun,
    ComparedValue,
    Findings,
    Gap,
    check_hashes,
    check_result,
    check_training,
    check_weights,
    prepare_again,
)
from compare.config.sections import run_name
from compare.experiment.prepare import PreparedData
from compare.report.table import render_views
from compare.results.run_folder import RunFolder
from compare.results.store import (
    REGISTRY,
    SUMMARY,
    Result,
    Summary,
    are_trials,
    of_budget,
    read_registry,
    read_results,
    stored_summary,
)
from compare.system.device import tune_cpu
from compare.system.log import track
from compare.system.messages import first_line
from compare.system.plugins import code_version, plugin_problem

logger = logging.getLogger(__name__)

MEANS_TOLERANCE = 1e-5
"""Largest relative difference of means and intervals between two types of CPU."""


class CheckResult(NamedTuple):
    """Result of checking an experiment."""

    findings: list[ComparedValue]
    """All compared values."""
    notes: list[str]
    """One line per other code version that made the results."""
    not_checked: list[str]
    """One line per subject that could not be checked."""

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
                findings.append(Gap(f"all but the hashes of files, and all tables: {problem}", result.run))
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
            for name, text in render_views(results, summary).items():
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
    """Compare experiment.json with the run folders, the requested seeds, and the hashes of the runs."""
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
    """Compare the stored summary with one computed again; it is None if it does not belong to the runs."""
    computed = summarise(folder, data_root=data_root) if stored else None
    if stored is None or computed is None:
        yield Gap("means and outcome, which belong to other results (`attnbench table` renews them)", SUMMARY)
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
    """Yield each subject once, with its runs."""
    runs: dict[str, dict[str, None]] = {}
    for gap in gaps:
        runs.setdefault(gap.subject, {})[gap.run] = None
    for subject, names in runs.items():
        yield f"{subject} ({', '.join(names)})"


def _general_limits(decoded: int, *, retrained: bool) -> Iterator[str]:
    """Name what was not requested, and what files cannot prove."""
    if not decoded:
        yield (
            "that translations, validation scores and perplexities come from the weights: "
            "--decode N computes them again"
        )
    if not retrained:
        yield "that the log comes from the settings of training: --retrain repeats the first updates"
    yield "device, torch, threads and code version, and whether the times were measured as stated"
    yield "experiment.toml, the trials of a search, plots, reports, and log.txt"
    yield "whether several files were changed together so that they agree"
