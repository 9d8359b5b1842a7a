"""Scores of finished runs by metrics from outside, kept in the runs as columns of their results."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.integrations.external_metrics import score_externally
from compare.report.views import refresh_views
from compare.results.column_catalogue import list_columns
from compare.results.external_file import (
    RecordedScores,
    SegmentScores,
    read_external,
    write_external,
)
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.score_columns import further_tests
from compare.results.store import is_run, read_result, save_result
from compare.results.write_protection import refuse_writing
from compare.scoring.metrics import metric_of
from compare.scoring.score import SystemScores
from compare.system.locks import lock_folder
from data.corpus import Corpus, Pairs
from data.text.compression import hash_decompressed
from data.text.files import hash_file
from data.text.paths import as_paths

FIELDS = frozenset(field.name for field in fields(Result))
"""Columns that every result has."""
ADDED = frozenset({"run", "system"})
"""Columns that tables of runs and of scores add to those of ``list_columns``."""
ENDINGS = re.compile("_(signature|ci_low|ci_high|smallest_difference)(_|$)|_sd$")
"""Ends of names that stand for a property of another column, also followed by a test set."""


class _System(NamedTuple):
    """A finished run and its translations."""

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
        ValueError: no such test set, a name that tables need, runs of different corpora, a published or
            read-only folder, translations that are not those of the result, scores of another signature than
            those of other runs of the experiment, or as ``add_external_scores``; nothing has been changed.
        Locked: another process works on a run; nothing has been changed.
    """
    paths, corpus = _finished_runs(as_paths(folders), data_root)
    test = test or corpus.tests[0]
    if test not in corpus.tests:
        raise ValueError(f"--test {test}: the corpus has the test sets {', '.join(corpus.tests)}")
    for metric in metrics:
        _check_name(metric.partition("=")[0], corpus.tests)
    with ExitStack() as locks:
        for path in paths:  # before the scoring, which may take an hour
            locks.enter_context(lock_folder(path.resolve()))
        systems = [_open_run(path, test) for path in paths]
        by_metric = _score(metrics, systems, corpus.splits[test], test)
        scores = [{name: each[number] for name, each in by_metric.items()} for number in range(len(systems))]
        _record(list(zip(systems, scores, strict=True)), test)
    return {
        str(system.path): SystemScores(scores=_columns(own))
        for system, own in zip(systems, scores, strict=True)
    }


def _check_name(name: str, tests: Sequence[str]) -> None:
    """Reject the name of a metric that tables would take for another column, or for one of another test set.

    Args:
        name: the name of the metric.
        tests: all test sets of the corpus.

    Raises:
        ValueError: it is such a name.
    """
    names = {text.casefold() for each in list_columns(tests[1:]) for text in (each.name, each.title)}
    if metric_of(name) or name in FIELDS | ADDED | names:
        raise ValueError(f"--external {name}: there is a column {name!r} already: choose another name")
    if ending := ENDINGS.search(name):
        raise ValueError(
            f"--external {name}: {ending[0]!r} marks a property of another column: choose another name"
        )
    test = next((test for test in (*tests, *further_tests([name])) if name.endswith(f"_{test}")), "")
    if test:
        raise ValueError(
            f"--external {name}: a column that ends in _{test} is of the test set {test!r}: choose another "
            f"name; --test {test} scores that test set"
        )


def _finished_runs(folders: Sequence[Path], data_root: str) -> tuple[list[Path], Corpus]:
    """List the given runs and those of the given experiments, and read their corpus."""
    runs: dict[Path, None] = {}
    experiments: dict[Path, FinishedExperiment] = {}
    for folder in folders:
        single = is_run(folder)
        experiment = folder.resolve().parent if single else folder
        refuse_writing(experiment, "add scores to the experiment itself, and publish it again")
        if experiment not in experiments:
            experiments[experiment] = load_finished(experiment, data_root=data_root)
        runs |= dict.fromkeys([folder] if single else [run.folder for run in experiments[experiment].runs])
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


def _score(
    metrics: Sequence[str], systems: Sequence[_System], pairs: Pairs, test: str
) -> dict[str, list[SegmentScores]]:
    """Score all runs, with source and reference of the corpus as plain files."""
    with TemporaryDirectory() as temporary:
        files = [Path(temporary) / f"{test}.{side}" for side in ("src", "ref")]
        for path, lines in zip(files, (pairs.src, pairs.tgt), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        src, ref = files
        outputs = [system.folder.output(test) for system in systems]
        names = [system.folder.name for system in systems]
        return score_externally(metrics, outputs, [ref], src, names)


def _record(scored: Sequence[tuple[_System, Mapping[str, SegmentScores]]], test: str) -> None:
    """Write the scores of the runs into external.json and result.json; the caller holds the runs' locks."""
    experiments: dict[Path, dict[Path, Mapping[str, SegmentScores]]] = {}
    for system, scores in scored:
        experiments.setdefault(system.folder.folder.parent, {})[system.folder.folder] = scores
    for experiment, new in experiments.items():
        _refuse_other_signatures(experiment, new, test)
    for system, scores in scored:
        _with_scores(read_result(system.folder.folder), scores, test)  # refused before anything is written
    for system, scores in scored:
        folder = system.folder
        known = read_external(folder.external)
        added = {
            name: RecordedScores(**asdict(each), translations=system.translations)
            for name, each in scores.items()
        }
        with lock_folder(folder.folder.parent, wait=True):
            write_external(folder.external, {**known, test: {**known.get(test, {}), **added}})
            result = _with_scores(read_result(folder.folder), scores, test)  # as another process left it
            files = {**result.files, folder.external.name: hash_file(folder.external)}
            save_result(folder.folder, replace(result, files=files))
    for experiment in experiments:
        with lock_folder(experiment, wait=True):
            refresh_views(experiment)


def _refuse_other_signatures(
    experiment: Path, new: Mapping[Path, Mapping[str, SegmentScores]], test: str
) -> None:
    """Raise ValueError if a column of an experiment would have two signatures, which no table can show.

    Args:
        experiment: its folder.
        new: the new scores of its runs, by folder and metric.
        test: the test set.
    """
    results = {path.parent: read_result(path.parent) for path in sorted(experiment.glob("*/result.json"))}
    shown = {folder: result.tests.get(test, result.scores) for folder, result in results.items()}
    columns = {**shown, **{folder: _columns(scores) for folder, scores in new.items()}}
    for name in next(iter(new.values())):
        found = ((each.get(f"{name}_signature"), folder.name) for folder, each in columns.items())
        signatures = {signature: run for signature, run in found if signature is not None}
        if len(signatures) > 1:
            (one, first), (other, second), *_ = signatures.items()
            raise ValueError(
                f"{name} of {first} has the signature {one}, that of {second} {other}: scores compare under "
                "one signature only, so score all runs of the experiment in the same way"
            )


def _with_scores(result: Result, scores: Mapping[str, SegmentScores], test: str) -> Result:
    """Return a result with the columns of new scores.

    Raises:
        ValueError: tables cannot have such columns beside the others.
    """
    if test in result.tests:
        new = replace(result, tests={**result.tests, test: {**result.tests[test], **_columns(scores)}})
    else:
        new = replace(result, scores={**result.scores, **_columns(scores)})
    new.flat()
    return new


def _columns(scores: Mapping[str, SegmentScores]) -> dict[str, float | str]:
    """List scores and signatures of one run by column."""
    return {key: value for name, each in scores.items() for key, value in each.columns(name).items()}
