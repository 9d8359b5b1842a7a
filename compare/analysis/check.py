"""Derive every figure of a finished experiment from its files once more, and say what differs."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from compare.derive import Figures, derive
from compare.prepare import Prepared, prepare
from compare.results import Result, read_results, to_view
from compare.run_folder import RunFolder
from compare.version import code_version
from compare.views.publish import SUFFIX
from compare.views.table import render
from data.vocabulary import load_pair

SAME = 1e-9
"""Share by which a figure may differ: that of sums taken in another order."""


class Finding(NamedTuple):
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


class Check(NamedTuple):
    """What was compared, and what it shows."""

    findings: list[Finding]
    notes: list[str]
    """What a reader should know of the check itself."""

    @property
    def differences(self) -> list[Finding]:
        """What does not agree."""
        return [finding for finding in self.findings if not finding.same]


def check(folder: Path, say: Callable[[str], None]) -> Check:
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
    findings: list[Finding] = []
    with TemporaryDirectory() as encoded:
        prepared = prepare(runs[0].experiment, Path(encoded), lambda line: None)
        for row, run in zip(done, runs, strict=True):
            say(f"checking {run.name}")
            findings += check_run(run, row, prepared.for_seed(row.seed))
    findings += check_views(folder, rows)
    others = {str(row.code_version) for row in done} - {code_version()}
    return Check(findings, [f"made by code {other}, checked by {code_version()}" for other in sorted(others)])


def check_run(run: RunFolder, row: Result, prepared: Prepared) -> Iterator[Finding]:
    """Compare the hashes of a run's files, then every figure of its row."""
    for path, recorded in row.files.items():
        file = run.folder / path
        found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "no such file"
        yield Finding(run.name, path, recorded, found)
    vocabulary = load_pair(run.folder).content_hash
    yield Finding(run.name, "vocabulary", vocabulary, prepared.vocabularies.content_hash)
    hashes: Figures = {
        "data_hash": prepared.corpus.content_hash,
        "batch_hash": prepared.batch_hash,
        "config_hash": run.config_hash,
    }
    try:
        derived = dataclasses.replace(row, **hashes, **derive(run, prepared)).flat()
    except (ValueError, LookupError, TypeError, ArithmeticError, OSError) as error:
        yield Finding(run.name, "figures", "done", str(error))
        return
    for name, recorded in row.flat().items():
        if recorded is None and name.partition("_")[0] == "ter":
            continue  # earlier versions did not compute it
        yield Finding(run.name, name, recorded, derived.get(name))


def check_views(folder: Path, rows: list[Result]) -> Iterator[Finding]:
    """Compare the tables, where there are any, with what the rows give."""
    views = {f"table.{suffix}": render(rows, form) for form, suffix in SUFFIX.items()}
    for name, text in {**views, "results.jsonl": to_view(rows)}.items():
        if (folder / name).is_file():
            same = (folder / name).read_text(encoding="utf-8") == text
            yield Finding(name, "content", "as the rows say", "as the rows say" if same else "something else")
