"""Publication of an experiment: what others need to score its translations again and to check its figures."""

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compare.config.parse import SCHEMA, toml_assignments
from compare.config.run import Run, find_difference, find_model_difference, runs_to_toml
from compare.experiment.task import task_of
from compare.experiment.tune import TRIALS
from compare.results.records import ENSEMBLE, SELECTION, EnsembleResult, read_ensemble, write_record
from compare.results.records import FOLDER as ENSEMBLES
from compare.results.run_folder import MASKS, RunFolder
from compare.results.store import Result, read_registry, read_result, read_results
from compare.results.text import escape_markdown
from compare.system.plugins import code_version
from compare.training.serialization import CHECKPOINTS
from data.files import check_vacant, hash_file, new_folder, read_bytes
from data.text import pack_gzip, read_decompressed
from data.vocabulary import FILE_NAME

# Settings of a published run: names stand in place of the paths of this machine.


MAX_BYTES = 1_000_000_000
"""Size that no file of a run other than its weights reaches."""
INIT_LINE = re.compile(r'^(?P<key>init_from\s*=\s*)(?P<path>".*")$', re.MULTILINE)
MASK_LINE = re.compile(rf'^(?P<key>{"|".join(MASKS)})\s*=\s*".*\.npy"$', re.MULTILINE)
ROOT_LINE = re.compile(r"^root\s*=.*$", re.MULTILINE)


def published_config(run: RunFolder) -> bytes:
    """Return the content of config.toml, with names in place of the paths of the corpus and of masks."""
    text = read_bytes(run.config, max_bytes=MAX_BYTES).decode()
    text = MASK_LINE.sub(lambda match: f'{match["key"]} = "{match["key"]}.npy"', text)
    return without_path(text, corpus_name(run.run.data.root)).encode()


def corpus_name(root: str) -> str:
    """Return the last part of ``data.root``, which does not depend on the machine; empty: built in."""
    return (Path(root).name or "corpus") if root else ""


def without_path(config: str, corpus: str) -> str:
    """Replace ``data.root`` in the text of a config by the name of the corpus, and shorten ``init_from``."""
    (line,) = toml_assignments({"root": corpus})
    text = ROOT_LINE.sub(lambda _: line, config, count=1)
    return INIT_LINE.sub(lambda match: f"{match['key']}{_last_parts(match['path'])}", text, count=1)


def _last_parts(path: str) -> str:
    """Return the last two parts of a path in TOML, "experiment/run"; any other text as it is."""
    return json.dumps("/".join(Path(json.loads(path)).parts[-2:]), ensure_ascii=False)


# The README of a published experiment: what it is, where it comes from, how to show and check it.


EXPERIMENT = "experiment.toml"
"""The file of a published folder with the settings of all models."""
NOTE = """# {name}

Results of an experiment{with_translations}, published by `attnbench publish`. There are no weights.

- Corpus: {corpus}
- Runs: {runs}
- Made with: {conditions}
- Made again by: `attnbench run {experiment} --seeds {seeds}{root} --out OUT`

Each run has its settings (`config.toml`), training log (`metrics.jsonl`), raw timings (`speed.json`), result
(`result.json`, with the sha256 of every file's content), vocabularies{and_translations} (`.gz`), and where
they were measured the likelihood of the references (`perplexity.json`) and scores by metrics from outside
(`external.json`). Ensembles of runs, if there are any, have theirs in `ensembles`.
{missing}{where}In this folder:

    attnbench table .
    attnbench check .{root}
    attnbench report .{root} --out report.html
{score}"""
MISSING = """Until the runs that are left out have ended and been published, `attnbench check` reports them
as missing and exits with 1.
"""


def source_note(
    name: str,
    results: Sequence[Result],
    runs: Sequence[RunFolder],
    corpus: str,
    left_out: Sequence[str] = (),
) -> str:
    """Write the README of a published folder.

    Args:
        name: the name of the folder.
        results: the results of all runs.
        runs: the folders of those that have begun.
        corpus: the name of the corpus; empty: the built-in one.
        left_out: names of the runs that had not ended and are not in the folder.
    """
    data, (first_test, *_) = runs[0].run.data, [*runs[0].tests, "test"]
    hashes = "".join(f"; sha256 {value}" for value in _distinct(results, "data_hash"))
    score = f"    attnbench score {runs[0].name}/{first_test}.hyp.gz --ref FOLDER/{first_test}.{data.tgt}\n"
    translates = task_of(runs[0].run).translates
    where = "FOLDER is your copy of the corpus, whose sha256 must be the one above. "
    return NOTE.format(
        name=escape_markdown(name),
        corpus=f"{escape_markdown(corpus) or 'built in'}, {data.src} to {data.tgt}{hashes}",
        runs=", ".join([_count_runs(results), *(f"{run} not ended, left out" for run in left_out)]),
        conditions=escape_markdown(", ".join(_conditions(results))),
        experiment=EXPERIMENT,
        seeds=",".join(_distinct(results, "seed")),
        root=" --set data.root=FOLDER" if corpus else "",
        missing=MISSING if left_out else "",
        where=where if corpus else "",
        with_translations=" with its translations" if translates else "",
        and_translations=" and translations" if translates else "",
        score=score if corpus and translates else "",
    )


def _count_runs(results: Sequence[Result]) -> str:
    """Count runs, models and seeds, and name the runs without a figure."""
    labels, seeds = _distinct(results, "label"), _distinct(results, "seed")
    others = [f"{result.run} {result.status}" for result in results if result.status != "done"]
    return ", ".join([f"{len(results)} ({', '.join(labels)}; seeds {', '.join(seeds)})", *others])


def _conditions(results: Sequence[Result]) -> list[str]:
    """List code versions, devices and what else speeds depend on."""
    return [
        *(f"attnbench {version}" for version in _distinct(results, "code_version")),
        *(f"torch {version}" for version in _distinct(results, "torch")),
        *_distinct(results, "device"),
        *(f"{threads} threads" for threads in _distinct(results, "threads")),
        *_distinct(results, "precision"),
        *(f"settings {value[:12]}" for value in _distinct(results, "settings_hash")),
    ]


def _distinct(results: Iterable[Result], field: str) -> list[str]:
    """List the known values of a field once each."""
    values = (getattr(result, field) for result in results)
    return list(dict.fromkeys(str(value) for value in values if value is not None))


# What a published folder keeps when the runs of another machine are added to it.


REGISTRY = "experiment.json"
SAME = ("data_hash", "vocabulary_hash", "settings_hash")
"""Entries of experiment.json that must be equal."""


def read_kept(folder: Path, out: Path, added: Sequence[RunFolder]) -> list[RunFolder]:
    """Read the runs of a published folder that are not among those added to it.

    Args:
        folder: the folder of the experiment that is added.
        out: the published folder; it may be absent or empty.
        added: the runs of ``folder``.

    Raises:
        ValueError: the two are not of one experiment, or a file of ``out`` is damaged.
    """
    if not (out / REGISTRY).is_file():
        return []
    old, new = read_registry(out / REGISTRY), _registry(folder)
    for key in SAME:
        if key in new and old.get(key) != new[key]:
            raise ValueError(
                f"{out} holds another experiment ({key} {str(old.get(key))[:12]}, here {new[key][:12]}): "
                "publish to another folder"
            )
    names = {run.name for run in added}
    kept = [
        RunFolder.read(out / result.run)
        for result in read_results(out)
        if result.run not in names and (out / result.run).is_dir()
    ]
    for run in kept:
        of_label = (each.run for each in added if each.run.label == run.run.label)
        difference = find_difference(added[0].run, run.run)
        for other in of_label:
            difference = difference or find_model_difference(other, run.run)
        if difference:
            raise ValueError(
                f"{run.folder} has other settings ({difference}): publish to another folder, "
                "or delete this one first"
            )
    return kept


def merge_registries(folder: Path, kept: Sequence[RunFolder], added: Sequence[RunFolder]) -> dict[str, Any]:
    """Merge experiment.json of two folders, where there are any; what it says by run or label is of both.

    Args:
        folder: the experiment that is added.
        kept: runs of the published folder that stay.
        added: those of ``folder``.
    """
    old, new = _registry(kept[0].folder.parent) if kept else {}, _registry(folder)
    asked: dict[str, set[int]] = {}
    for registry in (old, new):
        for label, seeds in registry.get("asked_seeds", {}).items():
            asked.setdefault(label, set()).update(seeds)
    merged = {**old, **new}
    for key in old.keys() & new.keys():
        if isinstance(old[key], dict) and isinstance(new[key], dict):
            merged[key] = {**old[key], **new[key]}
    if asked:
        merged["asked_seeds"] = {label: sorted(seeds) for label, seeds in asked.items()}
    return merged


def find_kept_ensembles(out: Path, target: Path) -> list[Path]:
    """List the folders of those ensembles in ``out`` whose members have the same weights in ``target``."""
    return [
        path.parent
        for path in sorted((out / ENSEMBLES).glob(f"*/{ENSEMBLE}"))
        if all(
            _weights_hash(out / name) == _weights_hash(target / name) for name in read_ensemble(path).members
        )
    ]


def _weights_hash(folder: Path) -> str:
    """Return the recorded hash of a run's weights; empty if there is no such run."""
    if not (folder / "config.toml").is_file():
        return ""
    weights = RunFolder.read(folder).weights.relative_to(folder).as_posix()
    return read_result(folder).files.get(weights, "")


def _registry(folder: Path) -> dict[str, Any]:
    path = folder / REGISTRY
    return read_registry(path) if path.is_file() else {}


SEARCH = (TRIALS,)
"""Files of a search for settings that its trials can be judged by."""


def publish_experiment(
    folder: str | Path,
    out: str | Path,
    *,
    tuning: str | Path | None = None,
    replace: bool = False,
    add: bool = False,
    unfinished: bool = False,
    finished_only: bool = False,
) -> Path:
    """Copy the results of an experiment, without its weights, into a new folder that others can check.

    Each run keeps its settings, training log, timings and result, and, compressed, its translations and
    vocabularies. Ensembles keep their figures and translations if all their members are published.
    ``data.root`` becomes the name of the corpus, so the hash of the settings is renewed. The folder appears
    complete or not at all. Every command shows it, and none writes into it.

    Args:
        folder: the folder of the experiment.
        out: the new folder.
        tuning: the folder of the search that the settings come from; by default that of the experiment, where
            it has one. Its trials are copied.
        replace: delete the published results that ``out`` holds.
        add: keep what ``out`` holds of this experiment, such as the runs of another machine. A run of the
            same name is replaced, an ensemble goes with its members, and a search is replaced by another.
        unfinished: accept runs that have not ended; the files that they have are copied.
        finished_only: leave out the runs that have not ended, as while an experiment is still running.

    Returns:
        ``out``.

    Raises:
        OSError: a file cannot be read or written, or ``out`` is not empty.
        ValueError: no runs, a run that has not ended or has no translations, a file that has changed since
            its result was recorded, no search in ``tuning``, something other than
            published results in ``out``, or, with ``add``, results of another experiment.
    """
    folder, out = Path(folder), Path(out)
    check_vacant(out, replace=replace or add)
    if replace or add:
        _refuse_other_content(out)
    results = read_results(folder)
    left_out = [each for each in results if finished_only and each.status == "unfinished"]
    results = [each for each in results if each not in left_out]
    runs = [_open_run(folder / result.run, result, unfinished=unfinished) for result in results]
    begun = [run for run in runs if run is not None]
    if not begun:
        raise ValueError(f"{folder}: no run has {'ended' if finished_only else 'begun'}: nothing to publish")
    kept = read_kept(folder, out, begun) if add else []
    registry = merge_registries(folder, kept, begun)
    everything = [*(read_result(run.folder) for run in kept), *results]
    missing = [each for each in left_out if each.run not in {run.name for run in kept}]
    texts = _describe_experiment(registry, out.resolve().name, everything, [*kept, *begun], missing)
    ensembles = _find_ensembles(folder, {run.name for run in begun})
    search = _search_files(folder, None if tuning is None else Path(tuning))
    if add and not search:
        search = _search_files(out, None)
    with new_folder(out, replace=replace or add) as target:
        for old in kept:
            shutil.copytree(old.folder, target / old.name)
        for run, result in zip(runs, results, strict=True):
            if run is not None:
                _copy_run(run, result, target / result.run)
        for path, ensemble in ensembles.items():
            _copy_ensemble(path, ensemble, target / ENSEMBLES / path.name)
        for path in find_kept_ensembles(out, target) if add else []:
            if path.name not in {each.name for each in ensembles}:
                shutil.copytree(path, target / ENSEMBLES / path.name)
        for name, text in texts.items():
            (target / name).write_bytes(text.encode())
        for path in search:
            (target / path.name).write_bytes(read_bytes(path, max_bytes=MAX_BYTES))
    return out


def _describe_experiment(
    registry: dict[str, Any],
    name: str,
    results: Sequence[Result],
    runs: Sequence[RunFolder],
    left_out: Sequence[Result],
) -> dict[str, str]:
    """Compose the files of the whole experiment.

    Args:
        registry: the content of experiment.json.
        name: the name of the published folder.
        results: the results of all runs that are published.
        runs: the folders of those that have begun.
        left_out: the results of the others.

    Returns:
        The texts by name of the file.
    """
    corpus = corpus_name(runs[0].run.data.root)
    published = {"corpus": corpus, "code_version": code_version()}
    content = {**registry, "runs": [result.run for result in results], "published": published}
    models: dict[str, Run] = {}  # each with its first seed
    for run in runs:
        masks = {Path(name).stem: f"{run.name}/{name}" for name in run.masks()}
        models.setdefault(run.run.label, dataclasses.replace(run.run, model=run.run.model.override(masks)))
    return {
        "experiment.json": json.dumps(content, indent=2) + "\n",
        EXPERIMENT: without_path(f"schema = {SCHEMA}\n\n{runs_to_toml(list(models.values()))}", corpus),
        "README.md": source_note(name, results, runs, corpus, [each.run for each in left_out]),
    }


def _search_files(folder: Path, tuning: Path | None) -> list[Path]:
    """List the files of the search for settings; those of the experiment's own folder may be absent.

    Raises:
        ValueError: ``tuning`` is not the folder of a search.
    """
    paths = [(tuning or folder) / name for name in SEARCH]
    absent = [path for path in paths if not path.exists()]
    if tuning and absent:
        raise ValueError(f"{tuning} has no {absent[0].name}: give the folder that `attnbench tune` wrote")
    return [path for path in paths if path not in absent]


def _refuse_other_content(out: Path) -> None:
    """Raise ValueError if ``out`` holds anything but results without weights."""
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / "experiment.json").is_file() or any(out.glob(f"*/{CHECKPOINTS}")):
        raise ValueError(f"{out} holds weights, or no results: only published results can be replaced")


def _open_run(folder: Path, result: Result, *, unfinished: bool) -> RunFolder | None:
    """Read a run that may be published; None if it has not begun.

    Raises:
        ValueError: see ``publish_experiment``.
    """
    if result.status == "unfinished" and not unfinished:
        raise ValueError(
            f"{folder} has not ended: run the experiment to its end, or publish it as it is with --unfinished"
        )
    if result.status == "unfinished" and not (folder / "config.toml").is_file():
        return None
    run = RunFolder.read(folder)
    if result.status != "done":
        return run
    if task_of(run.run).translates and not run.tests:
        raise ValueError(f"{folder} has no translations (*.hyp): nobody could score it again")
    hashes = run.hashes()
    weights = run.weights.relative_to(folder).as_posix()
    for name, recorded in result.files.items():
        if hashes.get(name, recorded if name == weights else None) != recorded:
            raise ValueError(
                f"{folder / name} is not what its result was computed from: restore it, "
                f"or look at `attnbench check {folder.parent}`"
            )
    return run


def _copy_run(run: RunFolder, result: Result, target: Path) -> None:
    """Copy the files of a run but its weights; compress its translations and vocabularies."""
    target.mkdir()
    for name, path in run.files().items():
        if path == run.weights:
            continue
        content = read_decompressed(path, max_bytes=MAX_BYTES)
        if path == run.config:
            content = published_config(run)
            result = with_config_hash(result, content)
        packed = name == FILE_NAME or name.endswith(".hyp")
        (target / (f"{name}.gz" if packed else name)).write_bytes(pack_gzip(content) if packed else content)
    if (run.folder / "result.json").is_file():
        (target / "result.json").write_bytes(f"{result.to_json()}\n".encode())


def _find_ensembles(folder: Path, runs: set[str]) -> dict[Path, EnsembleResult]:
    """Read the ensembles all of whose members are in ``runs``, by their folder.

    Raises:
        ValueError: translations that are not those that were scored, or a damaged ensemble.json.
    """
    found = {}
    for path in sorted((folder / ENSEMBLES).glob(f"*/{ENSEMBLE}")):
        ensemble = read_ensemble(path)
        for name, recorded in ensemble.files.items():
            if hash_file(path.parent / name) != recorded:
                raise ValueError(
                    f"{path.parent / name} is not what {ENSEMBLE} was computed from: restore it, or delete "
                    f"{path.parent} and run the ensemble again"
                )
        if runs.issuperset(ensemble.members):
            found[path.parent] = ensemble
    return found


def _copy_ensemble(folder: Path, ensemble: EnsembleResult, target: Path) -> None:
    """Copy the figures of an ensemble, its choice of a length penalty and, compressed, its translations."""
    target.mkdir(parents=True)
    if (folder / SELECTION).is_file():
        shutil.copyfile(folder / SELECTION, target / SELECTION)
    write_record(target / ENSEMBLE, ensemble)
    for name in ensemble.files:
        content = read_bytes(folder / name, max_bytes=MAX_BYTES)
        (target / f"{name}.gz").write_bytes(pack_gzip(content))


def with_config_hash(result: Result, config: bytes) -> Result:
    """Return ``result`` with the hash of another config.toml, of content ``config``, where it has one."""
    config_hash = _hash(config)
    files = {name: config_hash if name == "config.toml" else old for name, old in result.files.items()}
    return dataclasses.replace(
        result, config_hash=None if result.config_hash is None else config_hash, files=files
    )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
