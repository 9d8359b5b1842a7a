"""Check of a finished experiment: every figure is computed again by the functions that made it."""

import dataclasses
import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compare.check.decoding import check_weights
from compare.check.invariants import (
    INVARIANTS,
    check_experiment_files,
    check_hashes_alone,
)
from compare.check.run_data import CheckedRun, ComparedValue, DataCache, Findings, Gap, read_run
from compare.experiment.compute_result import (
    Figures,
    compute_figures,
    size_figures,
    speed_figures,
    unfinished_result,
)
from compare.report.views import render_views
from compare.results.records import read_speed
from compare.results.result import SETTINGS, Result
from compare.results.store import REGISTRY, read_registry, read_results
from compare.scoring.metrics import metric_of
from compare.system.cpu import tune_cpu
from compare.system.device import Machine
from compare.system.plugins import code_version, plugin_problem
from data.vocabulary import load_pair

logger = logging.getLogger(__name__)
NOT_DERIVED = (
    *(item.name for item in dataclasses.fields(Machine)),
    *("recurrent_precision", "code_version", "status", "reason", "tests", "scores", "files"),
)
"""Fields of a result that has begun which config and data do not determine."""
DAMAGE = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, OSError)
"""What a damaged file can raise."""
FIELDS = frozenset(item.name for item in dataclasses.fields(Result))


class CheckResult(NamedTuple):
    """Result of checking an experiment."""

    findings: list[ComparedValue]
    """All values that were compared."""
    notes: list[str]
    """One line per other code version that made the results."""
    not_checked: list[str]
    """One line per subject that the files cannot prove, or that needs a file that is not there."""
    hashes_only: list[str]
    """Names of the runs whose plug-ins are not here: of these, only hashes of files were compared."""

    @property
    def differences(self) -> list[ComparedValue]:
        """The values that do not agree."""
        return [finding for finding in self.findings if not finding.same]

    @property
    def summary(self) -> str:
        """One line: how much was compared, and how much differs."""
        incomplete = f"; of {len(self.hashes_only)} runs only hashes of files" if self.hashes_only else ""
        return f"{len(self.findings)} figures and files compared, {len(self.differences)} differ{incomplete}"


def check_experiment(folder: str | Path, *, decode: int = 0, data_root: str = "") -> CheckResult:
    """Check the runs of an experiment, and its tables, for contradictions.

    The corpus is read again from the location in each config. Batches, scores, sizes, FLOPs and hashes are
    computed again, and speeds from their stored measurements, by the functions that made the results.

    Args:
        folder: the folder of the experiment.
        decode: translate so many lines of each test set again from the weights, evenly spaced, and compute
            the validation scores of the weights again; 0: none.
        data_root: the folder of the corpus; empty: that of each config.

    Returns:
        All values that were compared; ``differences`` lists those that do not agree, and ``not_checked``
        what the files cannot prove.

    Raises:
        ValueError: no run is finished, or a result or config cannot be read.
    """
    folder = Path(folder)
    results = read_results(folder)
    if not any(result.status != "unfinished" for result in results):
        raise ValueError(f"{folder} holds no finished run: nothing to check")
    if decode:
        tune_cpu()  # as the runs did, so that products are rounded alike
    registry = read_registry(folder)
    findings: list[ComparedValue | Gap] = []
    runs: list[CheckedRun] = []
    begun: list[Result] = []
    stored = [result.run for result in results if plugin_problem(folder / result.run)]
    with TemporaryDirectory() as encoded:
        cache = DataCache(Path(encoded), data_root)
        for result in results:
            if not (folder / result.run / "config.toml").is_file():
                if result.status == "unfinished":
                    findings.append(Gap("a run that has not begun", result.run))
                else:
                    findings.append(ComparedValue(result.run, "config.toml", "a file", "no such file"))
                continue
            begun.append(result)
            logger.info(f"checking {result.run}")
            if result.run in stored:
                findings += check_hashes_alone(folder / result.run, result)
                continue
            run, problems = read_run(folder / result.run, result, cache)
            runs.append(run)
            findings += [*problems, *check_run(run, decode)]
        present = [result.run for result in results if result in begun or result.status != "unfinished"]
        findings += _catch(REGISTRY, "files", check_experiment_files(folder, registry, runs, present))
        views = render_views(results) if not stored else {}  # a table shows every run
        for name, text in views.items():
            if (folder / name).is_file():
                same = (folder / name).read_bytes() == text.encode()
                found = "as the runs say" if same else "something else"
                findings.append(ComparedValue(name, "content", "as the runs say", found))
    versions = {(run.result.code_version, code_version(run.folder.run.plugins)) for run in runs}
    return CheckResult(
        findings=[finding for finding in findings if isinstance(finding, ComparedValue)],
        notes=[
            f"made by code {made}, checked by {checked}"
            for made, checked in sorted((made, checked) for made, checked in versions if made)
            if made != checked
        ],
        not_checked=[
            *_group_by_subject(finding for finding in findings if isinstance(finding, Gap)),
            *_general_limits(decode),
        ],
        hashes_only=stored,
    )


def check_run(run: CheckedRun, decode: int) -> Findings:
    """Check one run by itself.

    Args:
        run: the run.
        decode: lines of each test set to translate again.
    """
    done = run.result.status == "done"
    for name, needs_done, check in INVARIANTS:
        if done or not needs_done:
            yield from _catch(run.name, name, check(run))
    if (run.folder.folder / "result.json").is_file():
        yield from _catch(run.name, "result.json", check_result(run))
    if not done:
        yield Gap(f"the figures of a run that is {run.result.status}", run.name)
    elif decode:
        yield from _catch(run.name, "weights", check_weights(run, decode))


def _catch(context: str, name: str, findings: Findings) -> Findings:
    """Give findings, and where a file is damaged, the error as one more difference."""
    try:
        yield from findings
    except DAMAGE as error:
        yield ComparedValue(context, name, "readable", str(error))


def check_result(run: CheckedRun) -> Findings:
    """Compare every field of a run's result with its value by config, data and files.

    Where the figures cannot be computed, a single value named "figures" holds the error message.
    """
    begun = dataclasses.asdict(unfinished_result(run.folder, run.prepared))
    derived = {name: value for name, value in begun.items() if value is not None and name not in NOT_DERIVED}
    derived |= {name: begun[name] for name in (*SETTINGS, "reproducible")}
    recorded = run.result.flat()
    if run.result.status == "done":
        try:
            figures = _figures(run)
            known = dataclasses.replace(run.result, **derived, **figures).flat()
            if run.prepared is None:
                derived |= {name: known[name] for name in figures}
            else:  # with the scores of test sets that the corpus does not have
                derived = dict.fromkeys(recorded) | known
        except DAMAGE as error:
            yield ComparedValue(run.name, "figures", "done", str(error))
    for name, value in derived.items():
        finding = ComparedValue(run.name, name, recorded.get(name), value)
        if finding.recorded is None and not finding.same and _is_optional(name):
            yield Gap(f"{name}, which was registered later", run.name)
        else:
            yield finding


def _figures(run: CheckedRun) -> Figures:
    """Compute all figures of the run; without its corpus those of its size and speed."""
    if run.prepared is not None:
        return compute_figures(run.folder, run.prepared)
    sizes = load_pair(run.folder.folder)
    size = size_figures(run.folder, run.folder.run.model.architecture, (len(sizes.src), len(sizes.tgt)))
    precision = run.folder.run.train.precision
    speed = speed_figures(read_speed(run.folder.speed), run.lines, flops=0.0, precision=precision)
    del speed["train_mfu"]  # the FLOPs follow from the lengths in the corpus
    return size | speed


def _is_optional(column: str) -> bool:
    """Return whether results may lack ``column``: of a metric that was registered later, or of their log."""
    metric = metric_of(column)
    return column == "late_gain" or (metric is not None and metric.name not in FIELDS)


# Lines about what a check does not cover.


def _group_by_subject(gaps: Iterable[Gap]) -> Iterator[str]:
    """Give each distinct subject once, with the runs that it holds for."""
    runs: dict[str, dict[str, None]] = {}
    for gap in gaps:
        runs.setdefault(gap.subject, {})[gap.run] = None
    for subject, names in runs.items():
        yield f"{subject} ({', '.join(names)})"


def _general_limits(decoded: int) -> Iterator[str]:
    """Name what no folder proves, and what was not asked for."""
    yield "device, torch, threads and code version, and whether the times were measured as stated"
    if not decoded:
        yield (
            "that translations, validation scores and perplexities come from the weights: "
            "--decode N computes them again"
        )
    elif decoded < sys.maxsize:
        yield f"translations beyond {decoded} lines per test set, and validations before the chosen one"
    yield "settings that leave no trace, such as dropout and clipping: only training again shows them"
    yield "the trials of a search, plots, reports, and logs for people"
    yield "whether several files were changed together so that they agree"
