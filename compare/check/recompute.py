"""Check of a finished experiment: every figure is computed again by the functions that made it."""

import dataclasses
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from compare.analysis.comparison import summarise
from compare.check.decoding import check_training, check_weights
from compare.check.invariants import (
    INVARIANTS,
    CheckedRun,
    ComparedValue,
    DataCache,
    Findings,
    Gap,
    check_experiment_files,
    check_hashes_alone,
    check_published_settings,
    read_run,
)
from compare.experiment.compute_result import compute_figures, unfinished_result
from compare.report.publish import EXPERIMENT
from compare.report.table import render_views
from compare.results.columns import FIGURES
from compare.results.store import (
    REGISTRY,
    SUMMARY,
    Summary,
    are_trials,
    read_registry,
    read_results,
    setting_text,
    stored_summary,
)
from compare.scoring import metric_of
from compare.system.device import Machine, tune_cpu
from compare.system.log import track
from compare.system.plugins import code_version, plugin_problem

logger = logging.getLogger(__name__)
NOT_DERIVED = (
    *(item.name for item in dataclasses.fields(Machine)),
    *("recurrent_precision", "code_version", "status", "reason", "settings", "tests", "scores", "files"),
)
"""Fields of a result that has begun which config and data do not determine."""
DAMAGE = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, OSError)
"""What a damaged file can raise."""


class CheckResult(NamedTuple):
    """Result of checking an experiment."""

    findings: list[ComparedValue]
    """All values that were compared."""
    notes: list[str]
    """One line per other code version that made the results."""
    not_checked: list[str]
    """One line per subject that the files cannot prove, or that needs a file that is not there."""

    @property
    def differences(self) -> list[ComparedValue]:
        """The values that do not agree."""
        return [finding for finding in self.findings if not finding.same]

    @property
    def summary(self) -> str:
        """One line: how much was compared, and how much differs."""
        return f"{len(self.findings)} figures and files compared, {len(self.differences)} differ"


def check_experiment(
    folder: str | Path, *, decode: int = 0, retrain: bool = False, data_root: str = ""
) -> CheckResult:
    """Check the runs of an experiment, and its tables, for contradictions.

    The corpus is read again from the location in each config. Batches, scores, sizes, FLOPs and hashes are
    computed again, and speeds from their stored measurements, by the functions that made the results.

    Args:
        folder: the folder of the experiment.
        decode: translate so many lines of each test set again from the weights, evenly spaced, and compute
            the validation scores of the weights again; 0: none.
        retrain: train each run again up to the first line of its log, and compare this line.
        data_root: the folder of the corpus; empty: that of each config.

    Returns:
        All values that were compared; ``differences`` lists those that do not agree, and ``not_checked``
        what the files cannot prove.

    Raises:
        ValueError: no run is finished, they are trials, or a result or config cannot be read.
    """
    folder = Path(folder)
    results = read_results(folder)
    if not any(result.status != "unfinished" for result in results):
        raise ValueError(f"{folder} holds no finished run: nothing to check")
    if are_trials(results):
        raise ValueError(f"{folder} holds a search, whose trials read no test set: run its best.toml")
    if decode or retrain:
        tune_cpu()  # as the runs did, so that products are rounded alike
    findings: list[ComparedValue | Gap] = []
    runs: list[CheckedRun] = []
    present: list[str] = []
    stored = [result.run for result in results if plugin_problem(folder / result.run)]
    with TemporaryDirectory() as encoded:
        cache = DataCache(Path(encoded), data_root)
        for result in track(results, "checking", "runs"):
            has_begun = (folder / result.run / "config.toml").is_file()
            if has_begun or result.status != "unfinished":
                present.append(result.run)
            logger.info(f"checking {result.run}")
            if not has_begun and result.status == "unfinished":
                findings.append(Gap("a run that has not begun", result.run))
            elif not has_begun:
                findings.append(ComparedValue(result.run, "config.toml", "a file", "no such file"))
            elif result.run in stored:
                findings += check_hashes_alone(folder / result.run, result)
            else:
                runs.append(read_run(folder / result.run, result, cache))
                findings += check_run(runs[-1], decode, retrain=retrain)
        files = check_experiment_files(read_registry(folder), runs, present)
        findings += _catch(REGISTRY, "files", files)
        if (folder / EXPERIMENT).is_file():
            findings += _catch(EXPERIMENT, "settings", check_published_settings(folder / EXPERIMENT, runs))
        summary = None if stored else stored_summary(folder, results)
        if (folder / SUMMARY).is_file() and not stored:
            findings += _catch(SUMMARY, "content", _check_summary(folder, summary, data_root))
        views = render_views(results, summary) if not stored else {}  # a table shows every run
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
            *_general_limits(decode, retrained=retrain),
        ],
    )


def _check_summary(folder: Path, stored: Summary | None, data_root: str) -> Findings:
    """Compare the summary of the runs, None if it is of others, with the one computed again."""
    if stored is None:
        yield Gap("means and outcome, which are of other results: `attnbench table` computes them", SUMMARY)
        return
    computed = summarise(folder, data_root=data_root)
    if stored.lacks_texts or computed.lacks_texts:
        yield Gap("means and outcome, whose texts cannot be read", SUMMARY)
        return
    same = _rounded(stored) == _rounded(computed)
    found = "as the runs say" if same else "something else"
    yield ComparedValue(SUMMARY, "content", "as the runs say", found)


def _rounded(summary: Summary) -> Any:
    """Return a summary with six digits of each number, as other processors round the last ones otherwise.

    Without what is unknown: a figure that was added later is no difference.
    """
    known = [{name: value for name, value in row.items() if value is not None} for row in summary.means]
    means = [
        {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
        for row in known
    ]
    return summary.results, means, summary.outcome


def check_run(run: CheckedRun, decode: int, *, retrain: bool = False) -> Findings:
    """Check one run by itself.

    Args:
        run: the run.
        decode: lines of each test set to translate again.
        retrain: whether to train up to the first line of its log again.
    """
    done = run.result.status == "done"
    yield from run.problems
    for name, needs_done, check in INVARIANTS:
        if done or not needs_done:
            yield from _catch(run.name, name, check(run))
    if (run.folder.folder / "result.json").is_file():
        yield from _catch(run.name, "figures", check_result(run))
    if not done:
        yield Gap(f"the figures of a run that is {run.result.status}", run.name)
    elif decode:
        yield from _catch(run.name, "weights", check_weights(run, decode))
    if retrain:
        yield from _catch(run.name, "training", check_training(run))


def _catch(context: str, name: str, findings: Findings) -> Findings:
    """Give findings, and where a file is damaged, the error as one more difference."""
    try:
        yield from findings
    except DAMAGE as error:
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        yield ComparedValue(context, name, "readable", problem)


def check_result(run: CheckedRun) -> Findings:
    """Compare every field of a run's result with its value by config, data and files.

    Without the corpus, only what follows from the config is compared.
    """
    unfinished = unfinished_result(run.folder, run.prepared)
    begun = dataclasses.asdict(unfinished)
    derived = {name: value for name, value in begun.items() if value is not None and name not in NOT_DERIVED}
    derived |= {name: begun[name] for name in ("init_hash", "reproducible")}
    settings = {name: setting_text(value) for name, value in run.folder.run.settings().items()}
    derived |= {name: settings.get(name) for name in run.result.settings}
    recorded = run.result.flat()
    for name in unfinished.settings.keys() - run.result.settings.keys():
        yield Gap(f"{name}, which was a default when the run was recorded", run.name)
    yield from _compare_fields(run, recorded, derived)
    if run.result.status == "done" and run.prepared is not None:
        kept = {name: getattr(run.result, name) for name in NOT_DERIVED}
        figures = {**kept, **compute_figures(run.folder, run.prepared)}
        # With the scores of test sets that the corpus does not have.
        further = dict.fromkeys(recorded) | dataclasses.replace(unfinished, **figures).flat()
        yield from _compare_fields(
            run, recorded, {name: value for name, value in further.items() if name not in derived}
        )


def _compare_fields(run: CheckedRun, recorded: Mapping[str, Any], derived: Mapping[str, Any]) -> Findings:
    for name, value in derived.items():
        metric = metric_of(name)
        is_new = FIGURES[name].added if name in FIGURES else metric is not None and metric.name not in FIGURES
        if recorded.get(name) is None and value is not None and is_new:
            yield Gap(f"{name}, which was added later", run.name)
        else:
            yield ComparedValue(run.name, name, recorded.get(name), value)


# Lines about what a check does not cover.


def _group_by_subject(gaps: Iterable[Gap]) -> Iterator[str]:
    """Give each distinct subject once, with the runs that it holds for."""
    runs: dict[str, dict[str, None]] = {}
    for gap in gaps:
        runs.setdefault(gap.subject, {})[gap.run] = None
    for subject, names in runs.items():
        yield f"{subject} ({', '.join(names)})"


def _general_limits(decoded: int, *, retrained: bool) -> Iterator[str]:
    """Name what no folder proves, and what was not asked for."""
    yield "device, torch, threads and code version, and whether the times were measured as stated"
    if not decoded:
        yield (
            "that translations, validation scores and perplexities come from the weights: "
            "--decode N computes them again"
        )
    elif decoded < sys.maxsize:
        yield f"translations beyond {decoded} lines per test set, and validations before the chosen one"
    if not retrained:
        yield "settings such as dropout, which show in training again alone: --retrain does the first updates"
    yield "the trials of a search, plots, reports, and logs for people"
    yield "whether several files were changed together so that they agree"
