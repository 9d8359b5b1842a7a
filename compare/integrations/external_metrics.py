"""Metrics of programs outside this environment, such as COMET: scores of files and of finished runs.

A learned metric has dependencies that ours exclude, so it runs as a program of its own; only its scores come
back. Those of finished runs are kept there as columns of their results.
"""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from compare.analysis.finished_experiment import load_finished
from compare.report.table import refresh_views, render_table
from compare.results.columns import list_columns
from compare.results.records import RecordedScores, SegmentScores, read_external
from compare.results.run_folder import RunFolder
from compare.results.store import (
    Result,
    is_run,
    read_result,
    read_results,
    refuse_writing,
    save_result,
    write_record,
)
from compare.scoring import METRICS, SystemScores
from compare.system.locks import lock_folder
from data.corpus import Corpus
from data.files import as_paths, hash_file
from data.text import ensure_parallel, hash_decompressed, read_lines

COMET_PACKAGE = "unbabel-comet==2.2.6"
"""What uvx installs, for itself alone."""
COMET_MODEL = "Unbabel/wmt22-comet-da"
"""Rei et al. 2022; it needs the source and a reference."""


def add_external_scores(
    scores: Mapping[str, SystemScores],
    metrics: Sequence[str],
    references: Sequence[str | Path],
    src: str | Path | None = None,
) -> dict[str, SystemScores]:
    """Add the scores of external metrics to those of ``score_files``.

    Args:
        scores: by the path of each system's translations.
        metrics: "comet", which uvx runs, NAME=FILE, or NAME=FILE,FILE with one file per system. Files have
            one number per line; a first line "# ..." is the signature.
        references: files of references; COMET takes one.
        src: the file of the source text.

    Returns:
        The scores with the columns NAME and NAME_signature.

    Raises:
        ValueError: a name that is taken, COMET fails or uvx is missing, no source or several references for
            it, or scores that are no numbers or not one per line.
    """
    texts = {system: read_lines(Path(system), allow_blank=True) for system in scores}
    source = None if src is None else read_lines(Path(src), allow_blank=True)
    reference_texts = [read_lines(path, allow_blank=True) for path in as_paths(references)]
    if src is not None and source is not None:
        ensure_parallel(Path(src), len(source), as_paths(references)[0], len(reference_texts[0]))
    found = _score(metrics, texts, reference_texts, source)
    return {
        system: replace(own, scores={**own.scores, **_columns(new)})
        for (system, own), new in zip(scores.items(), found, strict=True)
    }


Lines = Sequence[str]
Scores = dict[str, SegmentScores]
"""The scores of one system, by name of the metric."""


def _score(
    metrics: Sequence[str],
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    src: Lines | None,
    runs: Sequence[str] = (),
) -> list[Scores]:
    """Score translations, given by the names of the systems, by external metrics.

    {run} in NAME=FILE stands for each of ``runs``, the names of the systems' runs, if they are runs.
    """
    found: dict[str, list[SegmentScores]] = {}
    for metric in metrics:
        name, _, files = metric.partition("=")
        _check_name(name, found)
        if files:
            found[name] = _read_files(name, files, len(systems), runs)
        elif name == "comet":
            found[name] = _run_comet(list(systems.values()), references, src)
        else:
            raise ValueError(f"--external {name}: known is comet; else give NAME=FILE")
        for (system, lines), each in zip(systems.items(), found[name], strict=True):
            if len(each.segments) != len(lines):
                raise ValueError(f"{name}: {len(each.segments)} scores for {len(lines)} lines of {system}")
    return [dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True)]


def _columns(scores: Scores) -> dict[str, float | str]:
    """List scores and signatures by column."""
    return {key: value for name, each in scores.items() for key, value in each.columns(name).items()}


def _check_name(name: str, found: Mapping[str, object]) -> None:
    """Reject a name that cannot be that of a column, or is one already.

    An underscore would make it look like a figure of a test set, or like the signature of another metric.
    """
    if not re.fullmatch("[a-z][a-z0-9]*", name):
        raise ValueError(f"--external {name}: the name must be of lower-case letters and digits")
    taken = {field.name for field in fields(Result)} | METRICS.keys() | found.keys() | {"run", "system"}
    taken |= {text for column in list_columns([]) for text in (column.name, column.title.casefold())}
    if name in taken:
        raise ValueError(f"--external {name}: there is a column {name!r} already: choose another name")


def _read_files(name: str, files: str, systems: int, runs: Sequence[str]) -> list[SegmentScores]:
    """Read one file of scores per system; without a line "# ...", the signature is the names of the files."""
    paths = [Path(file) for file in files.split(",")]
    names = (f"{path.parent.name}/{path.name}".lstrip("/") for path in paths)  # no folder of one machine
    signature = f"{name}|file:{','.join(names)}"
    if "{run}" in files:
        paths = [Path(files.replace("{run}", run)) for run in runs]
    if len(paths) != systems:
        raise ValueError(f"--external {name}: {len(paths)} files of scores for {systems} systems")
    return [_read_scores(path, signature) for path in paths]


def _read_scores(path: Path, signature: str) -> SegmentScores:
    """Read one score per line, after an optional signature."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines and lines[0].startswith("#"):
        signature = lines.pop(0).lstrip("#").strip()
    try:
        segments = [float(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not segments or not all(map(math.isfinite, segments)):
        raise ValueError(f"{path}: needs one finite score per line")
    return SegmentScores(segments=segments, signature=signature)


def _run_comet(
    systems: Sequence[Lines], references: Sequence[Lines], src: Lines | None
) -> list[SegmentScores]:
    """Score all systems in one call, which loads the model once; scores are times 100, as others are."""
    if src is None:
        raise ValueError("--external comet reads the source text: give it with --src")
    if len(references) != 1:
        raise ValueError(f"--external comet takes one reference, found {len(references)}")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        hypotheses = {f"hyp{number}": lines for number, lines in enumerate(systems)}
        for name, lines in {"src": src, "ref": references[0], **hypotheses}.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = ["uvx", "--from", COMET_PACKAGE, "comet-score", "--model", COMET_MODEL]
        command += ["--quiet", "--only_system", "--gpus", str(int(shutil.which("nvidia-smi") is not None))]
        command += ["-s", "src", "-r", "ref", "-t", *hypotheses, "--to_json", "scores.json"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        except OSError as error:
            raise ValueError(
                f"comet: uvx cannot be started ({error.strerror}): install uv (https://docs.astral.sh/uv)"
            ) from None
        if done.returncode:
            errors = done.stderr.decode(errors="replace").strip().splitlines() or ["it prints no error"]
            raise ValueError(f"comet: uvx failed with status {done.returncode}: {errors[-1]}")
        records = json.loads((folder / "scores.json").read_bytes())
    segments = [[100 * float(each["COMET"]) for each in records[name]] for name in hypotheses]
    signature = f"comet|model:{COMET_MODEL}|{COMET_PACKAGE.replace('==', ':')}"
    return [SegmentScores(segments=each, signature=signature) for each in segments]


# Scores of finished runs.


def add_run_scores(
    folders: str | Path | Sequence[str | Path],
    metrics: Sequence[str],
    *,
    test: str = "",
    data_root: str = "",
) -> dict[str, SystemScores]:
    """Score the translations of finished runs by external metrics, and keep the scores in the runs.

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
            read-only folder, scores of another signature than those of other runs of the experiment, or as
            ``add_external_scores``; nothing has been changed.
        Locked: another process works on a run; nothing has been changed.
    """
    paths, corpus = _finished_runs(as_paths(folders), data_root)
    test = test or corpus.tests[0]
    if test not in corpus.tests:
        raise ValueError(f"--test {test}: the corpus has the test sets {', '.join(corpus.tests)}")
    with ExitStack() as stack:
        for path in paths:  # before the scoring, which may take an hour
            stack.enter_context(lock_folder(path.resolve()))
        runs = [RunFolder.read(path.resolve()) for path in paths]
        names, pairs = [run.name for run in runs], corpus.splits[test]
        texts = {
            str(path): read_lines(run.output(test), allow_blank=True)
            for path, run in zip(paths, runs, strict=True)
        }
        run_source, references = map(runs[0].run.readable, (pairs.src, pairs.tgt))
        scores = dict(zip(texts, _score(metrics, texts, [references], run_source, names), strict=True))
        experiments = {run.folder.parent for run in runs}
        added = {run.folder: own for run, own in zip(runs, scores.values(), strict=True)}
        for experiment in experiments:
            _check_table(experiment, added, test)
        for run in runs:
            _record(run, added[run.folder], test)
        for experiment in experiments:
            with lock_folder(experiment, wait=True):
                refresh_views(experiment)
    return {path: SystemScores(scores=_columns(own)) for path, own in scores.items()}


def _finished_runs(folders: Sequence[Path], data_root: str) -> tuple[list[Path], Corpus]:
    """List the given runs and those of the given experiments, and read their corpus."""
    runs: dict[Path, None] = {}
    corpora: dict[str, Corpus] = {}
    for folder in folders:
        single = is_run(folder)
        experiment = folder.resolve().parent if single else folder
        refuse_writing(experiment, "add scores to the experiment itself, and publish it again")
        finished = load_finished(experiment, data_root=data_root)
        corpora[finished.corpus.content_hash] = finished.corpus
        runs |= dict.fromkeys([folder] if single else [run.folder for run in finished.runs])
    if len(corpora) != 1:
        raise ValueError("the runs are of different corpora: add scores to each experiment by itself")
    return list(runs), next(iter(corpora.values()))


def _check_table(experiment: Path, added: Mapping[Path, Scores], test: str) -> None:
    """Raise ValueError if no table could show the results of an experiment with the scores of its runs."""
    results = [
        _with_scores(result, added.get(experiment / result.run, {}), test)
        for result in read_results(experiment)
    ]
    try:
        render_table(results)
    except ValueError as error:
        raise ValueError(f"{error}, or score all runs of {experiment.name} alike; no score is kept") from None


def _with_scores(result: Result, scores: Scores, test: str) -> Result:
    """Add the columns of scores to a result, to those of the test set that they are of."""
    if test in result.tests:
        return replace(result, tests={**result.tests, test: {**result.tests[test], **_columns(scores)}})
    return replace(result, scores={**result.scores, **_columns(scores)})


def _record(run: RunFolder, scores: Scores, test: str) -> None:
    """Write the scores of a run into external.json and result.json; the caller holds the lock of the run."""
    translations = hash_decompressed(run.output(test))
    added = {name: RecordedScores(**asdict(each), translations=translations) for name, each in scores.items()}
    known = read_external(run.external)
    with lock_folder(run.folder.parent, wait=True):
        write_record(run.external, {**known, test: {**known.get(test, {}), **added}})
        result = read_result(run.folder)  # as another process left it
        result = replace(result, files={**result.files, run.external.name: hash_file(run.external)})
        save_result(run.folder, _with_scores(result, scores, test))
