"""Check of an experiment: its figures are recomputed, and its files compared with each other."""

import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compare.check.experiment_files import REGISTRY, check_registry, check_sources, check_tables
from compare.check.findings import CheckResult, ComparedValue, Gap
from compare.check.not_checked import files_not_read, general_limits, group_by_line
from compare.check.other_runs import check_copies, check_shared_settings
from compare.check.result_fields import check_result, check_status
from compare.check.run_data import CheckedRun, DataCache, read_run
from compare.check.run_files import check_hashes, check_snapshots, check_vocabulary
from compare.check.training_log import check_log
from compare.check.translations import check_against_references, check_weights
from compare.results.result import Result
from compare.results.store import read_registry, read_results
from compare.system.version import code_version

logger = logging.getLogger(__name__)


def check_experiment(folder: str | Path, *, decode: int = 0) -> CheckResult:
    """Check the runs of an experiment, and its tables, for contradictions.

    The corpus is read again from the location in each config. Batches, scores, sizes, FLOPs and hashes are
    computed again, and speeds from their stored measurements, by the functions that made the results.

    Args:
        folder: the folder of the experiment.
        decode: translate so many lines of each test set again from the weights, evenly spaced, and compute
            the validation scores of the weights again; 0: none.

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
    registry = read_registry(folder / REGISTRY) if (folder / REGISTRY).is_file() else {}
    check = _Check(folder, decode)
    with TemporaryDirectory() as encoded:
        cache = DataCache(Path(encoded))
        for result in results:
            if (folder / result.run / "config.toml").is_file():
                logger.info(f"checking {result.run}")
                check.add_run(result, cache)
            else:
                check.gaps.append(Gap("a run that has not begun", result.run))
        check.add_experiment(registry, results)
    other_versions = {str(run.result.code_version) for run in check.finished} - {code_version()}
    notes = [f"made by code {other}, checked by {code_version()}" for other in sorted(other_versions)]
    not_checked = [
        *group_by_line(check.gaps),
        *files_not_read(folder, check.runs),
        *general_limits(decoded=decode, has_asked_seeds="asked_seeds" in registry),
    ]
    return CheckResult(check.findings, notes, not_checked)


class _Check:
    """The findings and gaps of one experiment, run after run."""

    def __init__(self, folder: Path, decode: int) -> None:
        self.folder, self.decode = folder, decode
        self.runs: list[CheckedRun] = []
        self.findings: list[ComparedValue] = []
        self.gaps: list[Gap] = []

    @property
    def finished(self) -> list[CheckedRun]:
        """The runs whose status is done."""
        return [run for run in self.runs if run.result.status == "done"]

    def add_run(self, result: Result, cache: DataCache) -> None:
        """Check one run by itself."""
        run, problems = read_run(self.folder / result.run, result, cache)
        self.runs.append(run)
        self.findings += [each for each in problems if isinstance(each, ComparedValue)]
        self.gaps += [each for each in problems if isinstance(each, Gap)]
        if result.status == "done":
            self.findings += check_hashes(run)
        fields, not_recorded = check_result(run)
        self.findings += [*_check_names(run), *fields]
        self.gaps += [Gap(f"{name}, which that version did not record", run.name) for name in not_recorded]
        for check in (check_status, check_log, check_vocabulary):
            self.findings += check(run)
        if result.status != "done":
            self.gaps.append(Gap(f"figures of a run that is {result.status}", run.name))
            return
        for check in (check_snapshots, check_against_references):
            self.findings += check(run)
        if not run.folder.weights.exists():
            self.gaps.append(Gap("weights: they are not in the folder", run.name))
        elif self.decode and run.prepared is not None:
            findings, gaps = check_weights(run, run.prepared, self.decode)
            self.findings += findings
            self.gaps += gaps

    def add_experiment(self, registry: dict[str, Any], results: list[Result]) -> None:
        """Check the runs against each other and against the files of the experiment."""
        self.findings += check_shared_settings(self.runs)
        self.findings += check_copies(self.finished)
        self.findings += check_registry(registry, self.runs)
        self.findings += check_sources(self.folder, self.runs)
        self.findings += check_tables(self.folder, results)


def _check_names(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare label and seed of the config with the name of the folder."""
    yield ComparedValue(run.name, "label and seed in config.toml", run.folder.run.name, run.name)
