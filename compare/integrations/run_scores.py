"""Scores of finished runs by metrics from outside, kept in the runs as columns of their results."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.integrations.external_metrics import score_externally
from compare.report.views import refresh_views
from compare.results.external_file import (
    RecordedScores,
    SegmentScores,
    external_columns,
    read_external,
    write_external,
)
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, save_result
from compare.results.write_protection import refuse_writing
from compare.scoring.score import SystemScores
from compare.system.locks import lock_folder
from data.corpus import Corpus, Pairs
from data.text.compression import hash_decompressed
from data.text.files import hash_file
from data.text.paths import as_paths


class _System(NamedTuple):
    """A finished run, and its translations when they were scored."""

    path: Path
    folder: RunFolder
    translations: str
    """sha256 of the translations."""


def add_run_scores(
    folders: str | Path | Sequence[str | Path],
    metrics: Sequence[str],
    *,
    test: str = "",
    data_root: str = "",
) -> dict[str, SystemScores]:
    """Score the translations of finished runs by metrics from outside, and keep the scores in the runs.

    Each run gets its segment scores in external.json, and their mean and signature in result.json.

    Args:
        folders: one or more folders of experiments or of single runs, all of one corpus.
        metrics: as for ``add_external_scores``; {run} in the name of a file stands for the name of each run.
        test: a test set of the corpus; empty: the first.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        The new scores by folder of the run.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: no such test set, runs of different corpora, a published or read-only folder, translations
            that are not those of the result, scores of another signature than those of other runs of the
            experiment, or as ``add_external_scores``.
        Locked: another process works on a run.
    """
    paths, corpus = _finished_runs(as_paths(folders), data_root)
    test = test or corpus.tests[0]
    if test not in corpus.tests:
        raise ValueError(f"--test {test}: the corpus has the test sets {', '.join(corpus.tests)}")
    systems = [_open_run(path, test) for path in paths]
    names = [system.folder.name for system in systems]
    found = _score([_for_runs(metric, names) for metric in metrics], systems, corpus.splits[test], test)
    experiments = dict.fromkeys(system.folder.folder.parent for system in systems)
    for experiment in experiments:
        _refuse_other_signatures(experiment, systems, found, test)
    scores = {}
    for number, system in enumerate(systems):
        own = {name: of_systems[number] for name, of_systems in found.items()}
        _record(system, test, own)
        columns = {key: value for name, each in own.items() for key, value in each.columns(name).items()}
        scores[str(system.path)] = SystemScores(scores=columns)
    for experiment in experiments:
        with lock_folder(experiment, wait=True):
            refresh_views(experiment)
    return scores


def _finished_runs(folders: Sequence[Path], data_root: str) -> tuple[list[Path], Corpus]:
    """List the given runs and those of the given experiments, and read their corpus."""
    runs: dict[Path, None] = {}
    experiments: dict[Path, FinishedExperiment] = {}
    for folder in folders:
        is_run = (folder / "result.json").is_file()
        experiment = folder.resolve().parent if is_run else folder
        refuse_writing(experiment, "add scores to the experiment itself, and publish it again")
        if experiment not in experiments:
            experiments[experiment] = load_finished(experiment, data_root=data_root)
        runs |= dict.fromkeys([folder] if is_run else [run.folder for run in experiments[experiment].runs])
    corpora = {each.corpus.content_hash: each.corpus for each in experiments.values()}
    if len(corpora) != 1:
        raise ValueError("the runs are of different corpora: add scores to each experiment by itself")
    (corpus,) = corpora.values()
    return list(runs), corpus


def _open_run(path: Path, test: str) -> _System:
    """Read a run; its translations must be those that its result was computed from."""
    folder = RunFolder.read(path.resolve())
    output = folder.output(test)
    translations = hash_decompressed(output)
    output_name = folder.plain_output(test).name
    if read_result(folder.folder).files.get(output_name, translations) != translations:
        raise ValueError(f"{output} is not what the run's result was computed from: look at attnbench check")
    return _System(path, folder, translations)


def _for_runs(metric: str, names: Sequence[str]) -> str:
    """Replace NAME=FILE with {run} in it by one file per run."""
    name, _, value = metric.partition("=")
    if "{hyp}" in value or "{run}" not in value:
        return metric
    return f"{name}={','.join(value.replace('{run}', run) for run in names)}"


def _score(
    metrics: Sequence[str], systems: Sequence[_System], pairs: Pairs, test: str
) -> dict[str, list[SegmentScores]]:
    """Score all runs, with source and reference of the corpus as plain files."""
    with TemporaryDirectory() as place:
        files = [Path(place) / f"{test}.{side}" for side in ("src", "ref")]
        for path, lines in zip(files, (pairs.src, pairs.tgt), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        src, ref = files
        return score_externally(metrics, [system.folder.output(test) for system in systems], [ref], src)


def _refuse_other_signatures(
    experiment: Path, systems: Sequence[_System], found: Mapping[str, Sequence[SegmentScores]], test: str
) -> None:
    """Raise ValueError if a column of an experiment would have two signatures, which no table can show."""
    new = {system.folder.folder: number for number, system in enumerate(systems)}
    for name, of_systems in found.items():
        signatures = {}
        for path in sorted(experiment.glob("*/external.json")):
            recorded = read_external(path).get(test, {}).get(name)
            if recorded is not None and path.parent not in new:
                signatures[recorded.signature] = path.parent.name
        for folder, number in new.items():
            if folder.parent == experiment:
                signatures[of_systems[number].signature] = folder.name
        if len(signatures) > 1:
            (one, first), (other, second), *_ = signatures.items()
            raise ValueError(
                f"{name} of {first} has the signature {one}, that of {second} {other}: scores compare under "
                "one signature only, so score all runs of the experiment in the same way"
            )


def _record(system: _System, test: str, scores: Mapping[str, SegmentScores]) -> None:
    """Write the scores of one run into its external.json and its result."""
    folder = system.folder
    with ExitStack() as locks:
        locks.enter_context(lock_folder(folder.folder))
        locks.enter_context(lock_folder(folder.folder.parent, wait=True))
        known = read_external(folder.external)
        added = {
            name: RecordedScores(**asdict(each), translations=system.translations)
            for name, each in scores.items()
        }
        write_external(folder.external, {**known, test: {**known.get(test, {}), **added}})
        result, columns = read_result(folder.folder), external_columns(folder, test)
        if test in result.tests:
            result = replace(result, tests={**result.tests, test: {**result.tests[test], **columns}})
        else:
            result = replace(result, scores={**result.scores, **columns})
        files = {**result.files, folder.external.name: hash_file(folder.external)}
        save_result(folder.folder, replace(result, files=files))
