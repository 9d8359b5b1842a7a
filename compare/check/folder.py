"""Check of the files of an experiment: other runs, ensembles, and what is not checked."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from compare.check.figures import read_timings
from compare.check.run_data import CheckedRun, ComparedValue, Gap
from compare.config.run import settings_hash, shared_settings
from compare.config.sections import run_name
from compare.decoding.length_penalty import length_penalties
from compare.experiment.tune import TRIALS
from compare.report.views import render_views
from compare.results.records import (
    ENSEMBLE,
    FOLDER,
    SELECTION,
    EnsembleResult,
    hash_members,
    read_ensemble,
    read_selection,
)
from compare.results.result import Result
from compare.scoring.score import all_metrics, score_texts
from compare.training.serialization import CHECKPOINTS, STATE, WEIGHTS
from data.files import hash_file, read_bytes
from data.text import hash_decompressed, hash_texts, plain_or_gzip, read_lines

# Check of the files of the whole experiment: experiment.json, test.src, results.jsonl and the tables.


REGISTRY, SOURCES = "experiment.json", "test.src"
AS_EXPECTED, OTHER = "as the runs say", "something else"
MAX_BYTES = 1_000_000_000
"""Size that no test.src reaches."""


def check_registry(
    registry: dict[str, Any], runs: Sequence[CheckedRun], present: Sequence[str]
) -> Iterator[ComparedValue]:
    """Compare experiment.json with the folders of runs, the seeds that were asked for, and the data.

    Args:
        registry: the content of experiment.json.
        runs: the runs that are there and can be read.
        present: names of all runs that are there.
    """
    listed = registry.get("runs", [])
    asked = {
        run_name(label, seed): "asked for"
        for label, seeds in registry.get("asked_seeds", {}).items()
        for seed in seeds
    }
    for name in dict.fromkeys([*asked, *listed, *present]):
        if name not in listed:
            yield ComparedValue(REGISTRY, f"runs, {name}", "not listed", asked.get(name, "a folder"))
        else:
            there = "a folder" if name in present else "no such folder"
            yield ComparedValue(REGISTRY, f"runs, {name}", "a folder", there)
    for run in runs:
        yield ComparedValue(
            REGISTRY, f"asked_seeds, {run.name}", asked.get(run.name, "not asked for"), "asked for"
        )
    for run in runs:
        hashes = {"settings_hash": settings_hash(run.folder.run)}
        if run.prepared is not None:
            hashes["data_hash"] = run.prepared.corpus.content_hash
            hashes["vocabulary_hash"] = run.prepared.vocabularies.content_hash
        for key, value in hashes.items():
            yield ComparedValue(REGISTRY, f"{key} of {run.name}", registry.get(key), value)


def check_sources(folder: Path, runs: Sequence[CheckedRun]) -> Iterator[ComparedValue]:
    """Compare test.src, if it is there, with the sources of the first test set."""
    path = folder / SOURCES
    corpora = [run.prepared.corpus for run in runs if run.prepared is not None]
    if path.is_file() and corpora:
        first = corpora[0].splits[corpora[0].tests[0]]
        expected = "".join(f"{line}\n" for line in first.src).encode()
        same = read_bytes(path, max_bytes=MAX_BYTES) == expected
        corpus = "as in the corpus"
        yield ComparedValue(SOURCES, "content", corpus, corpus if same else OTHER)


def check_tables(folder: Path, results: list[Result]) -> Iterator[ComparedValue]:
    """Compare those tables that exist, and results.jsonl, with their rendering from ``results``."""
    for name, text in render_views(results).items():
        if (folder / name).is_file():
            same = (folder / name).read_bytes() == text.encode()
            yield ComparedValue(name, "content", AS_EXPECTED, AS_EXPECTED if same else OTHER)


# Check of each run against the other runs: shared settings, and copied weights, texts, logs or timings.


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


# Check of ensembles: members, translations and scores.


LIKELIHOODS = {"perplexity", "char_perplexity"}
"""Scores that only the weights give."""


def check_ensembles(
    folder: Path, runs: Sequence[CheckedRun], results: Sequence[Result]
) -> Iterator[ComparedValue | Gap]:
    """Compare every ensemble.json with the weights of the runs, the translations and the references.

    Args:
        folder: the folder of the experiment.
        runs: the runs whose settings can be read.
        results: of all runs that are there.
    """
    for path in sorted((folder / FOLDER).glob(f"*/{ENSEMBLE}")):
        context = path.parent.relative_to(folder).as_posix()
        try:
            yield from list(_check_ensemble(path, context, runs, results))
        except (ValueError, OSError) as error:
            yield ComparedValue(context, "files", "readable", str(error))


def _check_ensemble(
    path: Path, context: str, runs: Sequence[CheckedRun], results: Sequence[Result]
) -> Iterator[ComparedValue | Gap]:
    result = read_ensemble(path)
    weights = {each.run: each.files.get(WEIGHTS, "no hash") for each in results}
    for name, recorded in result.members.items():
        yield ComparedValue(context, f"weights of {name}", recorded, weights.get(name, "no such run"))
    yield ComparedValue(context, "members_hash", result.members_hash, hash_members(result.members.values()))
    yield ComparedValue(context, "name", result.label, path.parent.name)
    members = [each for each in results if each.run in result.members]
    presets = {each.run: each.preset for each in members}
    preset = "+".join(dict.fromkeys(presets.get(name, "") for name in result.members))
    yield ComparedValue(context, "preset", result.preset, preset)
    sizes = [each.params for each in members if each.params is not None]
    if len(sizes) == len(result.members):
        yield ComparedValue(context, "params", result.params, sum(sizes))
    else:
        yield Gap("number of weights of the ensemble", context)
    shared = {each.settings_hash for each in members}
    for each in sorted(filter(None, shared)):
        yield ComparedValue(context, "settings_hash", result.settings_hash, each)
    yield ComparedValue(
        context, "files", sorted(f"{test}.hyp" for test in result.tests), sorted(result.files)
    )
    corpora = [run.prepared.corpus for run in runs if run.prepared is not None and run.name in result.members]
    if corpora:
        yield ComparedValue(context, "test sets", sorted(result.tests), sorted(corpora[0].tests))
    for test, scores in result.tests.items():
        plain = path.parent / f"{test}.hyp"
        output = plain_or_gzip(plain)
        recorded = result.files.get(plain.name, "no hash")
        yield ComparedValue(context, plain.name, recorded, hash_decompressed(output))
        if corpora and test in corpora[0].splits:
            references = corpora[0].splits[test].tgt
            found = score_texts(read_lines(output, allow_blank=True), references, scoring=all_metrics())
            for name, value in found.columns().items():
                yield ComparedValue(context, f"{name} of {test}", scores.get(name), value)
            others = sorted(scores.keys() - found.columns().keys() - LIKELIHOODS)
            yield ComparedValue(context, f"further scores of {test}", others, [])
        else:
            yield Gap(f"scores of the ensemble on {test}", context)
    yield from _check_search(path, context, result, runs)
    yield Gap("perplexity, validation scores and translations of the ensemble by the weights", context)


def _check_search(
    path: Path, context: str, result: EnsembleResult, runs: Sequence[CheckedRun]
) -> Iterator[ComparedValue | Gap]:
    """Compare beam and length penalty of an ensemble with the settings of its members, and with the rule."""
    member = next((run for run in runs if run.name in result.members), None)
    if member is None:
        return
    yield ComparedValue(context, "beam", result.beam, member.folder.run.decode.beam_size)
    penalties, recorded = length_penalties(member.folder.run.decode), path.with_name(SELECTION)
    if len(penalties) > 1 and not recorded.is_file():  # of an earlier version, which did not keep it
        yield Gap("length penalty of the ensemble", context)
        return
    penalty = penalties[0]
    if len(penalties) > 1:
        selection = read_selection(recorded, penalties)  # checks the grid and the rule
        yield ComparedValue(context, f"{SELECTION}: weights", selection.weights, result.members_hash)
        penalty = selection.penalty
    yield ComparedValue(context, "length_penalty", result.length_penalty, penalty.alpha)
    yield ComparedValue(context, "length_normalization", result.length_normalization, penalty.normalization)


# Lines about what a check does not cover.


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
    read = {folder / name for name in (REGISTRY, SOURCES, *VIEWS)}
    of_ensembles = (ENSEMBLE, SELECTION, ".hyp", ".hyp.gz")
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
