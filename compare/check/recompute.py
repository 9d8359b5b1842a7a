"""Recompute every figure of a finished experiment from its files and compare it with the recorded one."""

import dataclasses
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from compare.config.shared_settings import settings_hash
from compare.experiment.compute_result import compute_figures
from compare.experiment.converge import LONGER, recompute_convergence
from compare.experiment.convergence_file import NAME, read_convergence
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.speed_figures import Figures
from compare.report.publish import render_views
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_results
from compare.scoring.metrics import metric_of
from compare.scoring.score import HEADLINE
from compare.system.log import no_messages
from compare.system.version import code_version
from data.text.files import hash_file
from data.vocabulary import load_pair

logger = logging.getLogger(__name__)

RELATIVE_TOLERANCE = 1e-9
"""Largest relative difference of equal figures: sums may be taken in another order."""
LATER_FIGURES = ("brevity_penalty", "length_penalty", "length_normalization")
"""Figures that results of earlier versions lack."""


class ComparedValue(NamedTuple):
    """A recorded figure, or the hash of a recorded file, with its recomputed value."""

    context: str
    """Name of the run's folder, or of a file of the experiment."""
    name: str
    """Name of the figure, or path of the file in the run's folder."""
    recorded: Any
    recomputed: Any

    @property
    def same(self) -> bool:
        """Whether both values agree, floats within ``RELATIVE_TOLERANCE``."""
        if isinstance(self.recorded, float) and isinstance(self.recomputed, float):
            return math.isclose(self.recorded, self.recomputed, rel_tol=RELATIVE_TOLERANCE)
        return bool(self.recorded == self.recomputed)

    def __str__(self) -> str:
        """Describe the values in one line."""
        return f"{self.context}: {self.name}: recorded {self.recorded}, found {self.recomputed}"


class CheckResult(NamedTuple):
    """Result of checking an experiment."""

    findings: list[ComparedValue]
    """All values that were compared."""
    notes: list[str]
    """One line per other code version that made the results, and per file that could not be checked."""

    @property
    def differences(self) -> list[ComparedValue]:
        """The values that do not agree."""
        return [finding for finding in self.findings if not finding.same]


def check_experiment(folder: str | Path) -> CheckResult:
    """Check the finished runs of an experiment, and its tables.

    The corpus is read again from the location in the config. Batches, scores, sizes, FLOPs and hashes are
    computed again, and speeds from their stored measurements, by the functions that made the results.

    Args:
        folder: the folder of the experiment.

    Returns:
        All values that were compared; ``differences`` lists those that do not agree.

    Raises:
        ValueError: no run is finished, or a corpus or vocabulary cannot be read.
    """
    folder = Path(folder)
    results = read_results(folder)
    finished = [result for result in results if result.status == "done"]
    if not finished:
        raise ValueError(f"{folder} holds no finished run: nothing to check")
    runs = [RunFolder.read(folder / result.run) for result in finished]
    findings: list[ComparedValue] = []
    with TemporaryDirectory() as encoded:
        with no_messages(prepare_data.__module__):
            prepared = prepare_data(runs[0].run, Path(encoded))
        for result, run in zip(finished, runs, strict=True):
            logger.info(f"checking {run.name}")
            findings += check_run(run, result, prepared.for_seed(result.seed))
    findings += check_convergence(folder)
    findings += check_tables(folder, results)
    other_versions = {str(result.code_version) for result in finished} - {code_version()}
    notes = [f"made by code {other}, checked by {code_version()}" for other in sorted(other_versions)]
    if (folder / NAME).is_file() and not (folder / LONGER).is_dir():
        notes.append(f"{NAME}: not computed again, since the longer runs are not here")
    return CheckResult(findings, notes)


def check_run(run: RunFolder, result: Result, prepared: PreparedData) -> Iterator[ComparedValue]:
    """Compare the hashes of a run's files, then every figure of its result.

    If the figures cannot be computed, a single value named "figures" holds the error message.

    Args:
        run: the folder of the run.
        result: its recorded result.
        prepared: corpus, vocabularies and batches of the run's seed.
    """
    for path, recorded in result.files.items():
        file = run.folder / path
        file_hash = hash_file(file) if file.is_file() else "no such file"
        yield ComparedValue(run.name, path, recorded, file_hash)
    vocabulary_hash = load_pair(run.folder).content_hash
    yield ComparedValue(run.name, "vocabulary", vocabulary_hash, prepared.vocabularies.content_hash)
    hashes: Figures = {
        "data_hash": prepared.corpus.content_hash,
        "batch_hash": prepared.batch_hash,
        "settings_hash": settings_hash(run.run),
        "config_hash": run.config_hash,
    }
    try:
        recomputed = dataclasses.replace(result, **hashes, **compute_figures(run, prepared)).flat()
    except (ValueError, LookupError, TypeError, ArithmeticError, OSError) as error:
        yield ComparedValue(run.name, "figures", "done", str(error))
        return
    for name, recorded in result.flat().items():
        if recorded is None and (_is_optional(name) or name in LATER_FIGURES):
            continue  # earlier versions did not compute it
        yield ComparedValue(run.name, name, recorded, recomputed.get(name))


def _is_optional(column: str) -> bool:
    """Return whether ``column`` belongs to a metric that results may lack."""
    metric = metric_of(column)
    return metric is not None and metric.name not in HEADLINE.metrics


def check_convergence(folder: Path) -> Iterator[ComparedValue]:
    """Compare every entry of convergence.json with the logs, if the longer runs are here."""
    if not (folder / LONGER).is_dir():
        return
    for name, recorded in read_convergence(folder).items():
        try:
            recomputed = recompute_convergence(folder, name, recorded.factor)
        except (ValueError, OSError) as error:
            yield ComparedValue(NAME, name, recorded, str(error))
            continue
        found = "no such longer run" if recomputed is None else recomputed
        yield ComparedValue(NAME, name, recorded, found)


def check_tables(folder: Path, results: list[Result]) -> Iterator[ComparedValue]:
    """Compare those tables that exist, and results.jsonl, with their rendering from ``results``."""
    for name, text in render_views(results).items():
        if (folder / name).is_file():
            same = (folder / name).read_bytes() == text.encode()
            yield ComparedValue(
                name, "content", "as the rows say", "as the rows say" if same else "something else"
            )
