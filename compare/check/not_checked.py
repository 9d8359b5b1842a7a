"""Lines about what a check does not cover."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compare.check.experiment_files import REGISTRY, SOURCES
from compare.check.findings import Gap
from compare.check.run_data import CheckedRun
from compare.experiment.converge import LONGER, ended_longer_runs
from compare.experiment.convergence_file import NAME as CONVERGENCE
from compare.experiment.tune.trial_log import TRIALS
from compare.results.ensemble_file import FOLDER, NAME
from compare.results.selection import NAME as SELECTION
from compare.training.file_names import CHECKPOINTS, METRICS, STATE

VIEWS = ("results.jsonl", "table.md", "table.csv", "table.json")


def group_by_subject(gaps: Iterable[Gap]) -> Iterator[str]:
    """Give each distinct subject once, with the runs that it holds for."""
    runs: dict[str, list[str]] = {}
    for gap in gaps:
        runs.setdefault(gap.subject, []).append(gap.run)
    for subject, names in runs.items():
        yield f"{subject} ({', '.join(names)})"


def general_limits(*, decoded: int, has_asked_seeds: bool) -> Iterator[str]:
    """Name what no folder proves, and what was not asked for.

    Args:
        decoded: lines per test set that were translated again.
        has_asked_seeds: whether experiment.json records the seeds that were asked for.
    """
    yield "device, torch, threads and code version, and whether the times were measured as stated"
    if not decoded:
        yield (
            "that translations, validation scores and perplexities come from the weights: "
            "--decode N computes them again"
        )
    elif decoded < sys.maxsize:
        yield f"translations beyond {decoded} lines per test set, and validations before the chosen one"
    yield "settings that leave no trace, such as dropout and clipping: only training again shows them"
    if has_asked_seeds:
        yield "whether a run was taken out of all files, those that say which seeds were asked for included"
    else:
        yield "whether runs were left out: experiment.json does not say which seeds were asked for"


def files_not_read(folder: Path, runs: Sequence[CheckedRun], stored: Sequence[str] = ()) -> Iterator[str]:
    """Name the files of the folder that no check reads: plots, reports, caches, logs for people.

    Args:
        folder: the folder of the experiment.
        runs: the runs that are checked.
        stored: names of those of which only hashes are.
    """
    read = {folder / name for name in (REGISTRY, SOURCES, CONVERGENCE, *VIEWS)}
    read |= {folder / LONGER / name / METRICS for name in ended_longer_runs(folder)}
    of_ensembles = (NAME, SELECTION, ".hyp", ".hyp.gz")
    read |= {path for path in (folder / FOLDER).glob("*/*") if path.name.endswith(of_ensembles)}
    for run in runs:
        checkpoints = run.folder.folder / CHECKPOINTS
        read |= {run.folder.folder / "result.json", checkpoints / STATE, *run.folder.files().values()}
        read |= set(checkpoints.glob("update-*.safetensors"))
    for name in stored:
        read |= set((folder / name).rglob("*"))
    if (folder / TRIALS).is_file():
        yield f"the trials of the search: {TRIALS}, from which the report and a plot are made"
        read.add(folder / TRIALS)
    others = (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in read)
    kinds = dict.fromkeys(_kind(path.relative_to(folder)) for path in others)
    if kinds:
        yield f"files that no figure comes from: {', '.join(kinds)}"


def _kind(path: Path) -> str:
    """Name a file of the experiment's folder: "plots/*", "*/log.txt", "report.html"."""
    if len(path.parts) == 1:
        return path.name
    return f"*/{path.name}" if path.name == "log.txt" else f"{path.parts[0]}/*"
