"""Check of an experiment: its figures are recomputed, and its files compared with each other."""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from compare.check.figures import (
    DAMAGE,
    check_external,
    check_likelihoods,
    check_name,
    check_result,
    check_status,
    check_timings,
)
from compare.check.folder import (
    REGISTRY,
    check_copies,
    check_ensembles,
    check_registry,
    check_shared_settings,
    check_sources,
    check_tables,
    files_not_read,
    general_limits,
    group_by_subject,
)
from compare.check.run_data import CheckedRun, CheckResult, ComparedValue, DataCache, Gap, read_run
from compare.check.training import (
    check_hashes,
    check_initial_weights,
    check_log,
    check_selection,
    check_snapshots,
    check_stored,
    check_vocabulary,
)
from compare.check.translations import check_against_references, check_weights
from compare.config.plugins import plugin_problem
from compare.results.result import Result
from compare.results.store import read_registry, read_results
from compare.system.cpu import tune_cpu
from compare.system.plugins import code_version

logger = logging.getLogger(__name__)
Check = Callable[[CheckedRun], Iterable[ComparedValue | Gap]]
"""Check of one run."""


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
    registry = read_registry(folder / REGISTRY) if (folder / REGISTRY).is_file() else {}
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
                findings += check_stored(folder / result.run, result)
                continue
            run, problems = read_run(folder / result.run, result, cache)
            runs.append(run)
            findings += [*problems, *check_run(run, decode)]
        findings += check_shared_settings(runs)
        finished = [run for run in runs if run.result.status == "done"]
        findings += check_copies(finished)
        findings += check_timings(finished)
        present = [result.run for result in results if result in begun or result.status != "unfinished"]
        findings += check_registry(registry, runs, present)
        findings += check_sources(folder, runs)
        if not stored:  # a table shows every run
            findings += check_tables(folder, results)
        findings += check_ensembles(folder, runs, begun)
    versions = {(run.result.code_version, code_version(run.folder.run.plugins)) for run in runs}
    return CheckResult(
        findings=[finding for finding in findings if isinstance(finding, ComparedValue)],
        notes=[
            f"made by code {made}, checked by {checked}"
            for made, checked in sorted((made, checked) for made, checked in versions if made)
            if made != checked
        ],
        not_checked=[
            *group_by_subject(finding for finding in findings if isinstance(finding, Gap)),
            *files_not_read(folder, runs, stored),
            *general_limits(decoded=decode, has_asked_seeds="asked_seeds" in registry),
        ],
        hashes_only=stored,
    )


def check_run(run: CheckedRun, decode: int) -> Iterator[ComparedValue | Gap]:
    """Check one run by itself.

    Args:
        run: the run.
        decode: lines of each test set to translate again.
    """
    checks: list[Check] = [check_name, check_status, check_initial_weights, check_log]
    if (run.folder.folder / "result.json").is_file():
        checks.insert(0, check_result)
    if run.result.status == "done":
        checks = [check_hashes, *checks, check_vocabulary, check_snapshots, check_selection]
        checks += [check_likelihoods, check_external, check_against_references]
        if decode:
            checks.append(partial(check_weights, number=decode))
    else:
        yield Gap(f"the figures of a run that is {run.result.status}", run.name)
    for check in checks:
        try:
            yield from list(check(run))
        except (*DAMAGE, AttributeError) as error:
            yield ComparedValue(run.name, "files", "readable", str(error))
