"""Metrics of other programs, such as COMET, whose dependencies conflict with ours.

The metric runs as a separate program, or its scores are read from files. Scores of finished runs become
columns of their results.
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
from compare.report.result_table import refresh_views, render_table
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
from data.corpus import Corpus
from data.files import as_paths, hash_file
from data.locks import lock_folder
from data.text import ensure_parallel, hash_decompressed, iter_lines, read_lines

COMET_PACKAGE = "unbabel-comet==2.2.6"
"""Package that uvx installs in an environment of its own."""
COMET_MODEL = "Unbabel/wmt22-comet-da"
"""Rei et al. 2022; it reads the source and one reference."""
Lines = Sequence[str]
Scores = dict[str, SegmentScores]
"""Scores of one system by name of the metric."""


def add_external_scores(
    scores: Mapping[str, SystemScores],
    metrics: Sequence[str],
    references: Sequence[str | Path],
    src: str | Path | None = None,
) -> dict[str, SystemScores]:
    """Add the scores of external metrics to those of ``score_files``.

    Args:
        scores: scores by path of the translations of each system.
        metrics: "comet", which uvx runs, or NAME=FILE,... with one file per system. A file has one number per
            line, and may begin with a line "# SIGNATURE".
        references: files of references; COMET reads one.
        src: the file of the source text, for COMET.

    Returns:
        The scores with the columns NAME and NAME_signature.

    Raises:
        ValueError: a name is not allowed, COMET fails or lacks its texts, or a file has other lines.
    """
    texts = {system: read_lines(Path(system), allow_blank=True) for system in scores}
    source = None if src is None else read_lines(Path(src), allow_blank=True)
    reference_texts = [read_lines(path, allow_blank=True) for path in as_paths(references)]
    if src is not None and source is not None:
        ensure_parallel(Path(src), len(source), as_paths(references)[0], len(reference_texts[0]))
    added = _score(metrics, texts, reference_texts, source)
    return {
        system: replace(former, scores={**former.scores, **_columns(new)})
        for (system, former), new in zip(scores.items(), added, strict=True)
    }


def _score(
    metrics: Sequence[str],
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    src: Lines | None,
    runs: Sequence[str] = (),
) -> list[Scores]:
    """Score the translations of each system; {run} in NAME=FILE stands for the names ``runs`` of its run."""
    scores: dict[str, list[SegmentScores]] = {}
    for metric in metrics:
        name, _, files = metric.partition("=")
        _check_name(name, scores)
        if files:
            scores[name] = _read_files(name, files, len(systems), runs)
        elif name == "comet":
            scores[name] = _run_comet(list(systems.values()), references, src)
        else:
            raise ValueError(f"--external {name}: must be comet or NAME=FILE")
        for (system, lines), of_system in zip(systems.items(), scores[name], strict=True):
            if (count := len(of_system.segments)) != len(lines):
                raise ValueError(f"{name}: {count} scores for {len(lines)} lines of {system}")
    return [dict(zip(scores, of_system, strict=True)) for of_system in zip(*scores.values(), strict=True)]


def _columns(scores: Scores) -> dict[str, float | str]:
    columns = (segments.columns(name) for name, segments in scores.items())
    return {key: value for pair in columns for key, value in pair.items()}


def _check_name(name: str, earlier: Mapping[str, object]) -> None:
    """Raise ValueError if a column cannot have this name; "_" would look like the name of a test set."""
    if not re.fullmatch("[a-z][a-z0-9]*", name):
        raise ValueError(f"--external {name}: the name must have only lower-case letters and digits")
    taken = {field.name for field in fields(Result)} | METRICS.keys() | earlier.keys() | {"run", "system"}
    taken |= {text for column in list_columns([]) for text in (column.name, column.title.casefold())}
    if name in taken:
        raise ValueError(f"--external {name}: there is already a column {name!r}: choose another name")


def _read_files(name: str, files: str, systems: int, runs: Sequence[str]) -> list[SegmentScores]:
    """Read one file of scores per system; the default signature names the files."""
    paths = [Path(file) for file in files.split(",")]
    names = (f"{path.parent.name}/{path.name}".lstrip("/") for path in paths)
    signature = f"{name}|file:{','.join(names)}"
    if "{run}" in files:
        paths = [Path(files.replace("{run}", run)) for run in runs]
    if len(paths) != systems:
        raise ValueError(f"--external {name}: {len(paths)} files of scores for {systems} systems")
    return [_read_scores(path, signature) for path in paths]


def _read_scores(path: Path, signature: str) -> SegmentScores:
    segments = []
    for number, line in enumerate(iter_lines(path, allow_blank=True), start=1):
        if number == 1 and line.startswith("#"):
            signature = line.lstrip("#").strip()
            continue
        try:
            segments.append(float(line))
        except ValueError:
            segments.append(math.nan)
        if not math.isfinite(segments[-1]):
            raise ValueError(
                f"{path}, line {number}: {line!r:.60} is not a finite number; write one score per line"
            )
    return SegmentScores(segments=segments, signature=signature)


def _run_comet(
    systems: Sequence[Lines], references: Sequence[Lines], src: Lines | None
) -> list[SegmentScores]:
    """Score all systems in one call, which loads the model once; scores are multiplied by 100."""
    if src is None:
        raise ValueError("--external comet reads the source text: give it with --src")
    if len(references) != 1:
        raise ValueError(f"--external comet reads one reference, found {len(references)}")
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
    segments = [[100 * float(record["COMET"]) for record in records[name]] for name in hypotheses]
    signature = f"comet|model:{COMET_MODEL}|{COMET_PACKAGE.replace('==', ':')}"
    return [SegmentScores(segments=of_system, signature=signature) for of_system in segments]


# Scores of finished runs.


def add_run_scores(
    folders: str | Path | Sequence[str | Path],
    metrics: Sequence[str],
    *,
    test: str = "",
    data_root: str = "",
) -> dict[str, SystemScores]:
    """Score the translations of finished runs by external metrics, and store the scores in the runs.

    Segment scores go into external.json, their mean and signature into result.json. After an error, nothing
    has been changed.

    Args:
        folders: one or more folders of experiments or runs, all of one corpus.
        metrics: as for ``add_external_scores``; {run} in the name of a file stands for the name of each run.
        test: a test set of the corpus; empty: the first.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        The new scores by folder of the run.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: there is no such test set, the corpora or signatures of the runs differ, a folder is
            published or read-only, or as for ``add_external_scores``.
        Locked: another process works on a run.
    """
    runs, corpus = _finished_runs(as_paths(folders), data_root)
    test = test or corpus.tests[0]
    if test not in corpus.tests:
        raise ValueError(f"--test {test}: the corpus has the test sets {', '.join(corpus.tests)}")
    with ExitStack() as stack:
        for run in runs.values():  # lock before scoring, which may take an hour
            stack.enter_context(lock_folder(run.folder))
        texts = {path: read_lines(run.output(test), allow_blank=True) for path, run in runs.items()}
        names, settings = [run.name for run in runs.values()], next(iter(runs.values())).run
        source, references = map(settings.readable, (corpus.splits[test].src, corpus.splits[test].tgt))
        scores = _score(metrics, texts, [references], source, names)
        by_run = {run.folder: added for run, added in zip(runs.values(), scores, strict=True)}
        experiments = {folder.parent for folder in by_run}
        for experiment in experiments:
            _check_table(experiment, by_run, test)
        for run in runs.values():
            _record(run, by_run[run.folder], test)
        for experiment in experiments:
            with lock_folder(experiment, wait=True):
                refresh_views(experiment)
    return {path: SystemScores(scores=_columns(added)) for path, added in zip(runs, scores, strict=True)}


def _finished_runs(folders: Sequence[Path], data_root: str) -> tuple[dict[str, RunFolder], Corpus]:
    """Open the runs in the folders, by path, and read their corpus."""
    runs: dict[str, RunFolder] = {}
    corpora: dict[str, Corpus] = {}
    for folder in folders:
        single = is_run(folder)
        experiment = folder.resolve().parent if single else folder
        refuse_writing(experiment, "add scores to the experiment itself, and publish it again")
        finished = load_finished(experiment, data_root=data_root)
        corpora[finished.corpus.content_hash] = finished.corpus
        paths = [folder] if single else [run.folder for run in finished.runs]
        runs |= {str(path): RunFolder.read(path.resolve()) for path in paths}
    if len(corpora) != 1:
        raise ValueError("the runs have different corpora: add scores to one experiment at a time")
    return runs, next(iter(corpora.values()))


def _check_table(experiment: Path, by_run: Mapping[Path, Scores], test: str) -> None:
    """Raise ValueError if no table could show the results with their new scores."""
    results = [
        _with_scores(result, by_run.get(experiment / result.run, {}), test)
        for result in read_results(experiment)
    ]
    try:
        render_table(results)
    except ValueError as error:
        raise ValueError(f"{error}, or score all runs of {experiment.name}; no score was stored") from None


def _with_scores(result: Result, scores: Scores, test: str) -> Result:
    if test in result.tests:
        return replace(result, tests={**result.tests, test: {**result.tests[test], **_columns(scores)}})
    return replace(result, scores={**result.scores, **_columns(scores)})


def _record(run: RunFolder, scores: Scores, test: str) -> None:
    """Write scores into external.json and result.json; the caller holds the lock of the run."""
    digest = hash_decompressed(run.output(test))
    added = {name: RecordedScores(**asdict(one), translations=digest) for name, one in scores.items()}
    earlier = read_external(run.external)
    with lock_folder(run.folder.parent, wait=True):
        write_record(run.external, {**earlier, test: {**earlier.get(test, {}), **added}})
        result = read_result(run.folder)  # another process may have changed it
        result = replace(result, files={**result.files, run.external.name: hash_file(run.external)})
        save_result(run.folder, _with_scores(result, scores, test))
