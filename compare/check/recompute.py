"""Derive every figure of a finished experiment from its files once more, and say what differs."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from compare.experiment.compute_result import Figures, compute_figures
from compare.experiment.prepare import PreparedData, prepare_data
from compare.report.publish import SUFFIX
from compare.report.tables.table import render_table
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_results, to_json_lines
from compare.scoring.metrics import metric_of
from compare.scoring.score import HEADLINE
from compare.system.version import code_version
from data.vocabulary import load_pair

SAME = 1e-9
"""Share by which a figure may differ: that of sums taken in another order."""


class ComparedValue(NamedTuple):
    """A figure or file as it was recorded, and as its files say now."""

    place: str
    """Name of the run's folder, or of a file of the experiment's."""
    what: str
    recorded: Any
    derived: Any

    @property
    def same(self) -> bool:
        """Whether both agree."""
        if isinstance(self.recorded, float) and isinstance(self.derived, float):
            return math.isclose(self.recorded, self.derived, rel_tol=SAME)
        return bool(self.recorded == self.derived)

    def __str__(self) -> str:
        """One line."""
        return f"{self.place}: {self.what}: recorded {self.recorded}, found {self.derived}"


class CheckResult(NamedTuple):
    """What was compared, and what it shows."""

    findings: list[ComparedValue]
    notes: list[str]
    """What a reader should know of the check itself."""

    @property
    def differences(self) -> list[ComparedValue]:
        """What does not agree."""
        return [finding for finding in self.findings if not finding.same]


def check_experiment(folder: Path, say: Callable[[str], None]) -> CheckResult:
    """Check the finished runs of an experiment, and its tables.

    The corpus is read again from where the config says; batches, scores, sizes, FLOPs and hashes are computed
    again, speeds from their stored raw repeats, by the functions that the row was made with.

    Raises:
        ValueError: no finished run, or a corpus or vocabulary that cannot be read.
    """
    rows = read_results(folder)
    done = [row for row in rows if row.status == "done"]
    if not done:
        raise ValueError(f"{folder} holds no finished run: nothing to check")
    runs = [RunFolder.read(folder / row.run) for row in done]
    findings: list[ComparedValue] = []
    with TemporaryDirectory() as encoded:
        prepared = prepare_data(runs[0].experiment, Path(encoded), lambda line: None)
        for row, run in zip(done, runs, strict=True):
            say(f"checking {run.name}")
            findings += check_run(run, row, prepared.for_seed(row.seed))
    findings += check_views(folder, rows)
    others = {str(row.code_version) for row in done} - {code_version()}
    return CheckResult(
        findings, [f"made by code {other}, checked by {code_version()}" for other in sorted(others)]
    )


def check_run(run: RunFolder, row: Result, prepared: PreparedData) -> Iterator[ComparedValue]:
    """Compare the hashes of a run's files, then every figure of its row."""
    for path, recorded in row.files.items():
        file = run.folder / path
        found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "no such file"
        yield ComparedValue(run.name, path, recorded, found)
    vocabulary = load_pair(run.folder).content_hash
    yield ComparedValue(run.name, "vocabulary", vocabulary, prepared.vocabularies.content_hash)
    hashes: Figures = {
        "data_hash": prepared.corpus.content_hash,
        "batch_hash": prepared.batch_hash,
        "config_hash": run.config_hash,
    }
    try:
        derived = dataclasses.replace(row, **hashes, **compute_figures(run, prepared)).flat()
    except (ValueError, LookupError, TypeError, ArithmeticError, OSError) as error:
        yield ComparedValue(run.name, "figures", "done", str(error))
        return
    for name, recorded in row.flat().items():
        if recorded is None and _is_optional(name):
            continue  # earlier versions did not compute it
        yield ComparedValue(run.name, name, recorded, derived.get(name))


def _is_optional(column: str) -> bool:
    """Return whether ``column`` belongs to a metric that results may lack."""
    metric = metric_of(column)
    return metric is not None and metric.name not in HEADLINE.metrics


def check_views(folder: Path, rows: list[Result]) -> Iterator[ComparedValue]:
    """Compare the tables, where there are any, with what the rows give."""
    views = {f"table.{suffix}": render_table(rows, form) for form, suffix in SUFFIX.items()}
    for name, text in {**views, "results.jsonl": to_json_lines(rows)}.items():
        if (folder / name).is_file():
            same = (folder / name).read_text(encoding="utf-8") == text
            yield ComparedValue(
                name, "content", "as the rows say", "as the rows say" if same else "something else"
            )
