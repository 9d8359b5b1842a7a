"""Check of the files of the whole experiment: experiment.json, test.src, results.jsonl and the tables."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compare.check.findings import ComparedValue
from compare.check.run_data import CheckedRun
from compare.config.sections import run_name
from compare.config.shared_settings import settings_hash
from compare.report.views import render_views
from compare.results.result import Result
from data.text.files import read_bytes

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
        if run.is_current:
            yield ComparedValue(
                REGISTRY, f"asked_seeds, {run.name}", asked.get(run.name, "not asked for"), "asked for"
            )
    for run in runs:
        hashes = {"settings_hash": settings_hash(run.folder.run)}
        if run.prepared is not None:
            hashes["data_hash"] = run.prepared.corpus.content_hash
            hashes["vocabulary_hash"] = run.prepared.vocabularies.content_hash
        for key, value in hashes.items():
            if run.is_current or (registry.get(key) is not None and key != "settings_hash"):
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
