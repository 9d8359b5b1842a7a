"""Check of a result record: every field against the config, the data, the log, the timings and the texts."""

import dataclasses
from collections.abc import Iterator

from compare.check.findings import ComparedValue, Gap
from compare.check.run_data import CheckedRun
from compare.experiment.compute_result import compute_figures, size_figures
from compare.experiment.run_one import unfinished_result
from compare.experiment.task import task_of
from compare.experiment.timing.speed_figures import Figures, speed_figures
from compare.results.result import Result
from compare.results.speed_file import read_speed
from compare.scoring.metrics import metric_of
from compare.system.machine import Machine
from data.vocabulary import load_pair

MACHINE = tuple(item.name for item in dataclasses.fields(Machine))
NOT_DERIVED = (
    *MACHINE,
    "recurrent_precision",
    "code_version",
    "status",
    "reason",
    "tests",
    "scores",
    "files",
)
"""Fields of a result that has begun which config and data do not determine."""
NONE_IF_UNUSED = (
    "accumulate",
    "average_every",
    "consistency",
    "ema",
    "extended_from",
    "init_hash",
    "reproducible",
    "subword_sampling",
)
"""Fields whose value is None where a run does without; in others None means that nothing is known here."""
DAMAGE = (ValueError, LookupError, TypeError, ArithmeticError, OSError)
"""What a damaged file can raise."""
FIELDS = frozenset(item.name for item in dataclasses.fields(Result))


def check_name(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare label and seed of the config with the name of the folder."""
    yield ComparedValue(run.name, "label and seed in config.toml", run.folder.run.name, run.name)


def check_result(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare every field of a run's result with its value by config, data and files.

    Where the figures cannot be computed, a single value named "figures" holds the error message.
    """
    begun = dataclasses.asdict(unfinished_result(run.folder, run.prepared))
    derived = {name: value for name, value in begun.items() if value is not None and name not in NOT_DERIVED}
    derived |= {name: begun[name] for name in NONE_IF_UNUSED}
    if not run.is_current:
        derived.pop("settings_hash", None)  # that version had other settings
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
        if finding.recorded is None and not finding.same and (not run.is_current or _is_optional(name)):
            yield Gap(f"{name}, which that version did not record", run.name)
        else:
            yield finding


def check_status(run: CheckedRun) -> Iterator[ComparedValue]:
    """Report a run that is not done, although its files say that it is.

    A run that failed diverged in training, so its log has no final line.
    """
    status = run.result.status
    if task_of(run.folder.run).translates:
        tested = any(name.endswith(".hyp") for name in run.folder.files())
    else:
        tested = run.folder.likelihoods.exists()
    ended = run.final is not None and (status == "failed" or (tested and run.folder.speed.exists()))
    yield ComparedValue(run.name, "status", status, "done" if ended else status)
    if status != "unfinished":  # lack of memory is a reason to be unfinished
        reason = "no reason" if run.result.reason is None else "a reason"
        expected = "a reason" if status == "failed" else "no reason"
        yield ComparedValue(run.name, "reason of a failure", reason, expected)


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
    """Return whether ``column`` belongs to a metric that results may lack: one that was registered later."""
    metric = metric_of(column)
    return metric is not None and metric.name not in FIELDS
