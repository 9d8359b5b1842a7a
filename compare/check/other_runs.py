"""Check of each run against the other runs: shared settings, and copied weights, texts, logs or timings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import combinations
from typing import Any

from compare.check.findings import ComparedValue
from compare.check.run_data import CheckedRun
from compare.check.timings import read_timings
from compare.config.shared_settings import shared_settings
from data.text.files import hash_file
from data.text.lines import hash_texts, read_lines

WRONG_LINES = 5
"""Different lines, none equal to its reference, from which equal translations of two runs are no accident."""


def check_copies(runs: Sequence[CheckedRun]) -> Iterator[ComparedValue]:
    """Compare every finished run with every other one.

    Two runs of different settings or seeds have different weights, and make different mistakes. No two runs
    take the same times.
    """
    tests = {test for run in runs if run.prepared is not None for test in run.prepared.corpus.tests}
    translations = {f"{test}.hyp": partial(_translations, test=test) for test in sorted(tests)}
    for name, mark in (translations | _MARKS).items():
        marks = {run.name: mark(run) for run in runs}
        for first, second in combinations(runs, 2):
            if marks[first.name] is None or marks[second.name] is None:
                continue
            if "times" not in name and _equal_training(first, second):  # of two labels: they may be equal
                continue
            if name == "times in speed.json" and first.result.label == second.result.label:
                continue  # the seeds of a label share them
            copied = marks[first.name] == marks[second.name]
            found = f"those of {first.name}" if copied else "its own"
            yield ComparedValue(second.name, name, "its own", found)


def check_shared_settings(runs: Sequence[CheckedRun]) -> Iterator[ComparedValue]:
    """Compare the settings that runs share: outside ``[[models]]`` all but the seed, in a label those too.

    The value of most runs is taken for the right one.
    """
    yield from _compare_settings(runs, lambda run: shared_settings(run.folder.run))
    for label in dict.fromkeys(run.folder.run.label for run in runs):
        same_label = [run for run in runs if run.folder.run.label == label]
        yield from _compare_settings(same_label, lambda run: run.folder.run.model_table())


def _compare_settings(
    runs: Sequence[CheckedRun], settings: Callable[[CheckedRun], dict[str, Any]]
) -> Iterator[ComparedValue]:
    tables = {run.name: settings(run) for run in runs}
    for name in dict.fromkeys(name for table in tables.values() for name in table):
        values = [table.get(name) for table in tables.values()]
        most = max(values, key=values.count)
        for run, table in tables.items():
            yield ComparedValue(run, f"{name} in config.toml, as in other runs", table.get(name), most)


def _weights(run: CheckedRun) -> str | None:
    return hash_file(run.folder.weights) if run.folder.weights.is_file() else None


def _translations(run: CheckedRun, test: str) -> str | None:
    """Hash the translations of a test set; None where too few of them are wrong to tell two models apart."""
    if run.prepared is None or test not in run.prepared.corpus.tests:
        return None
    try:
        lines = read_lines(run.folder.output(test), allow_blank=True)
    except (ValueError, OSError):
        return None  # reported by the check of the figures
    references = run.prepared.corpus.splits[test].tgt
    wrong = {line for line, reference in zip(lines, references, strict=False) if line != reference}
    return hash_texts(lines) if len(wrong) >= WRONG_LINES else None


def _training_times(run: CheckedRun) -> str | None:
    times = [(line.get("data_s"), line.get("train_s")) for line in run.lines if line["kind"] == "train"]
    return str(times) if times else None


def _timings(run: CheckedRun) -> str | None:
    timings = read_timings(run)
    if timings is None:
        return None
    if timings.greedy is None or timings.beam is None or timings.latency is None:
        return None if timings.train is None else str(timings.train.seconds)
    return str([timings.greedy.seconds, timings.beam.seconds, timings.latency.ms])


_MARKS: dict[str, Callable[[CheckedRun], str | None]] = {
    "weights": _weights,
    "times in metrics.jsonl": _training_times,
    "times in speed.json": _timings,
}
"""What no two runs have in common, and the function that reads it from a run; None where it is not there.
Translations are the other thing, one per test set."""


def _equal_training(first: CheckedRun, second: CheckedRun) -> bool:
    """Return whether two runs differ in their labels at most."""
    one, other = (run.folder.run for run in (first, second))
    return one.model == other.model and asdict(one.train) == asdict(other.train)
