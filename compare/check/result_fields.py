"""Check of a result record: every field against the config, the data, the log, the timings and the texts."""

import dataclasses
from collections.abc import Iterator

from compare.check.findings import ComparedValue
from compare.check.run_data import CheckedRun
from compare.experiment.compute_result import Figures, compute_figures, size_figures, speed_figures
from compare.experiment.run_one import unfinished_result
from compare.results.result import Result
from compare.results.speed_file import read_speed
from compare.scoring.metrics import metric_of
from data.vocabulary import load_pair

NOT_DERIVED = ("device", "torch", "threads", "code_version", "status", "reason", "tests", "scores", "files")
"""Fields of a result that has begun which config and data do not determine."""
FIELDS = frozenset(item.name for item in dataclasses.fields(Result))


def check_result(run: CheckedRun) -> tuple[list[ComparedValue], list[str]]:
    """Compare every field of a run's result with its value by config, data and files.

    Where the figures cannot be computed, a single value named "figures" holds the error message.

    Returns:
        The compared values, and the fields that an earlier version did not record.
    """
    begun = dataclasses.asdict(unfinished_result(run.folder, run.prepared))
    derived = {name: value for name, value in begun.items() if value is not None and name not in NOT_DERIVED}
    if not run.is_current:
        derived.pop("settings_hash", None)  # its settings were other ones
    recorded, failure = run.result.flat(), []
    if run.result.status == "done":
        try:
            figures = _figures(run)
            known = dataclasses.replace(run.result, **derived, **figures).flat()
            if run.prepared is None:
                derived |= {name: known[name] for name in figures}
            else:  # with the scores of test sets that the corpus does not have
                derived = dict.fromkeys(recorded) | known
        except (ValueError, LookupError, TypeError, ArithmeticError, OSError) as error:
            failure = [ComparedValue(run.name, "figures", "done", str(error))]
    findings = [ComparedValue(run.name, name, recorded.get(name), value) for name, value in derived.items()]
    missing = [each.name for each in findings if each.recorded is None and not each.same]
    missing = [name for name in missing if not run.is_current or _is_optional(name)]
    return failure + [each for each in findings if each.name not in missing], missing


def check_status(run: CheckedRun) -> Iterator[ComparedValue]:
    """Report a run that has a final line, translations and timings, but is not done."""
    translated = any(name.endswith(".hyp") for name in run.folder.files())
    ended = run.final is not None and translated and run.folder.speed.exists()
    status = run.result.status
    yield ComparedValue(run.name, "status", status, "done" if ended else status)
    if status != "unfinished":  # lack of memory is a reason to be unfinished
        yield ComparedValue(run.name, "reason given", run.result.reason is not None, status == "failed")


def _figures(run: CheckedRun) -> Figures:
    """Compute all figures of the run; without its corpus those of its size and speed."""
    if run.prepared is not None:
        return compute_figures(run.folder, run.prepared)
    sizes = load_pair(run.folder.folder)
    size = size_figures(run.folder, run.folder.run.model.architecture, (len(sizes.src), len(sizes.tgt)))
    return size | speed_figures(read_speed(run.folder.speed))


def _is_optional(column: str) -> bool:
    """Return whether ``column`` belongs to a metric that results may lack: one that was registered later."""
    metric = metric_of(column)
    return metric is not None and metric.name not in FIELDS
