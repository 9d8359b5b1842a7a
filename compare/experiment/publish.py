"""Publication of an experiment: what others need to score its translations again and to check its figures."""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from compare.config.parse import SCHEMA
from compare.config.run import Run, find_difference, runs_to_toml
from compare.experiment.tune import TRIALS
from compare.results.run_folder import RunFolder
from compare.results.store import (
    REGISTRY,
    SUMMARY,
    Registry,
    Result,
    read_registry,
    read_results,
    renew,
    stored_summary,
    write_record,
)
from compare.results.text import escape_markdown
from compare.system.plugins import code_version
from data.files import check_vacant, new_folder
from data.text import pack_gzip, read_decompressed
from data.vocabulary import FILE_NAME

EXPERIMENT = "experiment.toml"
"""The file of a published folder with the settings of all models."""
SAME = ("data_hash", "vocabulary_hash", "settings_hash")
"""Entries of experiment.json that are equal in folders of one experiment."""


def publish_experiment(
    folder: str | Path,
    out: str | Path,
    *,
    tuning: str | Path | None = None,
    replace: bool = False,
    add: bool = False,
    unfinished: bool = False,
    finished_only: bool = False,
    weights: bool = False,
) -> Path:
    """Copy the results of an experiment, without its weights, into a new folder that others can check.

    Each run keeps its settings, training log, timings and result, and, compressed, its translations and
    vocabularies. Names stand in place of the paths of this machine, so the hash of the settings is renewed.
    The folder appears complete or not at all. Every command shows it, and none writes into it.

    Args:
        folder: the folder of the experiment.
        out: the new folder.
        tuning: the folder of the search that the settings come from; by default that of the experiment, where
            it has one. Its trials are copied.
        replace: delete the published results that ``out`` holds.
        add: keep what ``out`` holds of this experiment, such as the runs of another machine. A run of the
            same name is replaced, and a search by another.
        unfinished: accept runs that have not ended; the files that they have are copied.
        finished_only: leave out the runs that have not ended, as while an experiment is still running.
        weights: also copy the weights of each model's lowest seed.

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
    sources = [out, folder] if add and (out / REGISTRY).is_file() else [folder]
    results, places = dict[str, Result](), dict[str, Path]()
    for source in sources:
        for result in read_results(source):
            if not (finished_only and result.status == "unfinished" and result.run in results):
                results[result.run], places[result.run] = result, source
    left_out = [name for name, each in results.items() if finished_only and each.status == "unfinished"]
    for name in left_out:
        del results[name]
    opened = [
        _open_run(places[name] / name, result, unfinished=unfinished or places[name] == out)
        for name, result in results.items()
    ]
    runs = [run for run in opened if run is not None]
    if not runs:
        raise ValueError(f"{folder}: no run has {'ended' if finished_only else 'begun'}: nothing to publish")
    _ensure_one_experiment(runs, folder, out)
    corpus = corpus_name(runs[0].run.data.root)
    registry = _merge_registries(sources)
    registry.runs = list(results)
    registry.published = {"corpus": corpus, "code_version": code_version()}
    models: dict[str, Run] = {}  # each with its first seed
    firsts = {run.run.label: run.name for run in sorted(runs, key=lambda run: -run.run.train.seed)}
    for run in runs:
        models.setdefault(run.run.label, published_run(run, f"{run.name}/"))
    search = _find_search([Path(tuning)] if tuning else sources[::-1], required=tuning is not None)
    with new_folder(out, replace=replace or add) as target:
        for run in runs:
            _copy_run(
                run, results[run.name], target / run.name, weights=weights and run.name in firsts.values()
            )
        registry.write(target)
        settings = f"schema = {SCHEMA}\n\n{runs_to_toml(list(models.values()))}"
        note = source_note(out.resolve().name, list(results.values()), runs, corpus, left_out)
        for name, text in {EXPERIMENT: settings, "README.md": note}.items():
            (target / name).write_bytes(text.encode())
        if search is not None:
            (target / TRIALS).write_bytes(search.read_bytes())
        summary = stored_summary(folder, read_results(folder))
        if summary is not None and len(results) == len(read_results(folder)):
            write_record(target / SUMMARY, renew(summary, read_results(target)))
    return out


def _refuse_other_content(out: Path) -> None:
    """Raise ValueError if ``out`` holds anything but results without weights."""
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / REGISTRY).is_file() or not read_registry(out).published:
        raise ValueError(f"{out} holds no published results: only published results can be replaced")


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
    if run.run.translates and not run.tests:
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


def _ensure_one_experiment(runs: Sequence[RunFolder], folder: Path, out: Path) -> None:
    """Raise ValueError if runs of ``folder`` are added to runs of ``out`` with other data or settings."""
    kept = [run for run in runs if run.folder.parent == out]
    added = [run for run in runs if run.folder.parent == folder]
    if not kept or not added:
        return
    old, new = read_registry(out), read_registry(folder)
    for key in SAME:
        there, here = getattr(old, key), getattr(new, key)
        if here and there != here:
            raise ValueError(
                f"{out} holds another experiment ({key} {there[:12]}, here {here[:12]}): "
                "publish to another folder"
            )
    for run, other in product(kept, added):
        if difference := find_difference(other.run, run.run):
            raise ValueError(
                f"{run.folder} has other settings ({difference}): publish to another folder, "
                "or delete this one first"
            )


def _merge_registries(folders: Sequence[Path]) -> Registry:
    """Merge experiment.json of the folders that have one; of two values for a label, the last one stands."""
    merged = Registry()
    for new in map(read_registry, folders):
        for label, seeds in new.asked_seeds.items():
            merged.asked_seeds[label] = sorted({*merged.asked_seeds.get(label, []), *seeds})
        merged.seconds_per_update |= new.seconds_per_update
        merged.calibrated_as |= new.calibrated_as
        for key in SAME:
            setattr(merged, key, getattr(new, key) or getattr(merged, key))
    return merged


def _find_search(folders: Sequence[Path], *, required: bool) -> Path | None:
    """Return the trials of the first folder that has some.

    Raises:
        ValueError: none has, and they are required.
    """
    for path in (folder / TRIALS for folder in folders):
        if path.exists():
            return path
    if required:
        raise ValueError(f"{folders[0]} has no {TRIALS}: give the folder that `attnbench tune` wrote")
    return None


def _copy_run(run: RunFolder, result: Result, target: Path, *, weights: bool) -> None:
    """Copy the files of a run, its weights if asked; compress its translations and vocabularies."""
    target.mkdir()
    for name, path in run.files().items():
        if path == run.weights:
            if weights:
                (target / name).parent.mkdir()
                (target / name).write_bytes(path.read_bytes())
            continue
        content = read_decompressed(path)
        if path == run.config:
            content = published_run(run).to_toml().encode()
            result = with_config_hash(result, content)
        packed = name == FILE_NAME or name.endswith(".hyp")
        (target / (f"{name}.gz" if packed else name)).write_bytes(pack_gzip(content) if packed else content)
    if (run.folder / "result.json").is_file():
        (target / "result.json").write_bytes(f"{result.to_json()}\n".encode())


# Settings of a published run: names stand in place of the paths of this machine.


def published_run(run: RunFolder, prefix: str = "") -> Run:
    """Return the settings of a run with names in place of the paths of its corpus, masks and first weights.

    Args:
        run: the run.
        prefix: what the names of the masks begin with.
    """
    settings, init_from = run.run, run.run.train.init_from
    if init_from is not None:
        init_from = "/".join(Path(init_from).parts[-2:])  # experiment/run
    return dataclasses.replace(
        settings,
        data=dataclasses.replace(settings.data, root=corpus_name(settings.data.root)),
        train=dataclasses.replace(settings.train, init_from=init_from),
        model=settings.model.override({Path(name).stem: f"{prefix}{name}" for name in run.masks()}),
    )


def corpus_name(root: str) -> str:
    """Return the last part of ``data.root``, which does not depend on the machine; empty: built in."""
    return (Path(root).name or "corpus") if root else ""


def with_config_hash(result: Result, config: bytes) -> Result:
    """Return ``result`` with the hash of another config.toml, of content ``config``, where it has one."""
    config_hash = hashlib.sha256(config).hexdigest()
    files = {name: config_hash if name == "config.toml" else old for name, old in result.files.items()}
    return dataclasses.replace(
        result, config_hash=None if result.config_hash is None else config_hash, files=files
    )


# The README of a published experiment: what it is, where it comes from, how to show and check it.


NOTE = """# {name}

Results of an experiment, published by `attnbench publish`.

- Corpus: {corpus}
- Runs: {runs}
- Made with: {conditions}
- Made again by: `attnbench run {experiment} --seeds {seeds}{root} --out OUT`

Each run has its settings (`config.toml`), training log (`metrics.jsonl`), raw timings (`speed.json`), result
(`result.json`, with the sha256 of every file's content), vocabularies and translations if it translates
(`.gz`), and where they were measured the likelihood of the references (`perplexity.json`) and scores by
metrics from outside (`external.json`).
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
    labels, seeds = _distinct(results, "label"), _distinct(results, "seed")
    states = [f"{result.run} {result.status}" for result in results if result.status != "done"]
    states += [f"{run} not ended, left out" for run in left_out]
    conditions = {
        **{"code_version": "attnbench {}", "torch": "torch {}", "device": "{}", "threads": "{} threads"},
        **{"precision": "{}", "settings_hash": "settings {:.12}"},
    }
    made_with = [form.format(value) for key, form in conditions.items() for value in _distinct(results, key)]
    return NOTE.format(
        name=escape_markdown(name),
        corpus=f"{escape_markdown(corpus) or 'built in'}, {data.src} to {data.tgt}{hashes}",
        runs=", ".join([f"{len(results)} ({', '.join(labels)}; seeds {', '.join(seeds)})", *states]),
        conditions=escape_markdown(", ".join(made_with)),
        experiment=EXPERIMENT,
        seeds=",".join(seeds),
        root=" --set data.root=FOLDER" if corpus else "",
        missing=MISSING if left_out else "",
        where="FOLDER is your copy of the corpus, whose sha256 must be the one above. " if corpus else "",
        score=score if corpus and runs[0].run.translates else "",
    )


def _distinct(results: Iterable[Result], field: str) -> list[str]:
    """List the known values of a field once each."""
    values = (getattr(result, field) for result in results)
    return list(dict.fromkeys(str(value) for value in values if value is not None))
