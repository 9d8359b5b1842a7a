"""Publication of an experiment: what others need to score its translations again and to check its figures."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from compare.config.parse import SCHEMA, load_experiment
from compare.config.resolve import Run, runs_to_toml
from compare.experiment.tune import BEST, TRIALS_FILE
from compare.report.render import escape_markdown, fill_page
from compare.report.table import find_summary
from compare.results.run_folder import RunFolder
from compare.results.store import (
    SUMMARY,
    Result,
    read_registry,
    read_results,
    results_hash,
    train_commands,
    write_record,
)
from compare.system.plugins import code_version
from data.files import check_vacant, new_folder
from data.text import pack_gzip, read_decompressed
from data.vocabulary import FILE_NAME

logger = logging.getLogger(__name__)

EXPERIMENT = "experiment.toml"
"""The file of a published folder with the settings of all models."""


def publish_experiment(
    folder: str | Path,
    out: str | Path,
    *,
    tuning: str | Path | None = None,
    replace: bool = False,
    weights: bool = False,
    data_root: str = "",
) -> Path:
    """Copy the results of an experiment, without its weights, into a new folder that others can check.

    Each run keeps its settings, training log, timings and result, and, compressed, its translations and
    vocabularies. Names stand in place of the paths of this machine, so the hash of config.toml is renewed.
    Runs without a result are left out; the README names them. The folder appears complete or not at all.
    Every command shows it, and none writes into it.

    Args:
        folder: the folder of the experiment.
        out: the new folder.
        tuning: the folder of the search that the settings come from; by default that of the experiment, where
            it has one. Its trials are copied.
        replace: delete the published results that ``out`` holds.
        weights: also copy the weights of each model's first finished seed.
        data_root: the folder of the corpus now, whose last part names it in what is published, and with which
            means and outcome are computed again; empty: that of the settings.

    Returns:
        ``out``.

    Raises:
        OSError: a file cannot be read or written, or ``out`` is not empty.
        ValueError: no run has ended, one has no translations, a file that has changed since its result was
            recorded, no search in ``tuning``, or something other than published results in ``out``.
    """
    folder, out = Path(folder), Path(out)
    check_vacant(out, replace=replace)
    if out.is_dir() and any(out.iterdir()) and not read_registry(out).published:
        raise ValueError(f"{out} holds no published results: only published results can be replaced")
    asked = {result.run: result for result in read_results(folder)}
    results = {name: each for name, each in asked.items() if (folder / name / "result.json").is_file()}
    left_out = [name for name in asked if name not in results]
    if all(result.is_external for result in results.values()):
        raise ValueError(f"{folder}: no run of a model has ended: nothing to publish")
    if left_out:
        logger.warning(f"left out, as they have not ended: {', '.join(left_out)}")
    runs = [_open_run(folder / name, result, data_root) for name, result in results.items()]
    done = [run for run in runs if results[run.name].status == "done"]
    firsts: dict[str, RunFolder] = {}
    for run in [*done, *runs]:
        firsts.setdefault(run.run.label, run)
    corpus, registry = corpus_name(runs[0].run.data.root), read_registry(folder)
    registry.runs, registry.published = list(results), {"corpus": corpus, "code_version": code_version()}
    trials = Path(tuning or folder) / TRIALS_FILE
    if tuning and not trials.exists():
        raise ValueError(f"{tuning} has no {TRIALS_FILE}: give the folder that `attnbench tune` wrote")
    with new_folder(out, replace=replace) as target:
        for run in runs:
            _copy_run(run, results[run.name], target / run.name, weights=weights and run in firsts.values())
        registry.write(target)
        models = [published_run(run, f"{run.name}/") for run in firsts.values() if not run.run.is_external]
        starts = {run.run.train.init_hash for run in runs if not run.run.is_external}
        systems = [
            {"label": run.run.label} | {test: f"{run.name}/{test}.hyp.gz" for test in run.tests}
            for run in firsts.values()
            if run.run.is_external
        ]
        written = runs_to_toml(models, systems, own_starts=len(starts) > 1)
        settings = f"schema = {SCHEMA}\n\n{written}"
        note = source_note(out.resolve().name, list(results.values()), [*done, *runs][0], left_out)
        for name, text in {EXPERIMENT: settings, "README.md": note}.items():
            (target / name).write_bytes(text.encode())
        if trials.exists():
            (target / TRIALS_FILE).write_bytes(trials.read_bytes())
        if (best := trials.with_name(BEST)).exists():
            (target / BEST).write_bytes(_published_best(best).encode())
        if done and not left_out:
            summary = find_summary(folder, list(results.values()), data_root)
            if not summary.lacks_texts:  # it names a path of this machine
                published = results_hash(read_results(target))
                write_record(target / SUMMARY, dataclasses.replace(summary, results=published))
    return out


def _open_run(folder: Path, result: Result, data_root: str) -> RunFolder:
    """Read a run that may be published.

    Raises:
        ValueError: see ``publish_experiment``.
    """
    run = RunFolder.read(folder, data_root=data_root)
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
                f"or look at `attnbench check {quote(str(folder.parent))}`"
            )
    return run


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
    (target / "result.json").write_bytes(f"{result.to_json()}\n".encode())


# Settings of a published run: names stand in place of the paths of this machine.


def _published_best(path: Path) -> str:
    """Return the content of best.toml with names in place of the paths of this machine."""
    experiment, text = load_experiment(path), path.read_text(encoding="utf-8")
    names = {experiment.data.root: corpus_name(experiment.data.root)}
    if experiment.train.init_from is not None:
        names[experiment.train.init_from] = _run_name(experiment.train.init_from)
    names |= {file: Path(file).name for system in experiment.systems for file in system.files.values()}
    settings = (value for model in experiment.models for value in model.overrides.values())
    names |= {mask: Path(mask).name for mask in settings if isinstance(mask, str) and mask.endswith(".npy")}
    for file, name in names.items():
        written, published = (json.dumps(each, ensure_ascii=False) for each in (file, name))
        text = text.replace(written, published)
    return text


def _run_name(init_from: str) -> str:
    """Return EXPERIMENT/RUN of the folder of a run."""
    return "/".join(Path(init_from).parts[-2:])


def published_run(run: RunFolder, prefix: str = "") -> Run:
    """Return the settings of a run with names in place of the paths of its corpus, masks and first weights.

    Args:
        run: the run.
        prefix: what the names of the masks begin with.
    """
    settings, init_from = run.run, run.run.train.init_from
    if init_from is not None:
        init_from = _run_name(init_from)
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
    name, config_hash = "config.toml", hashlib.sha256(config).hexdigest()
    return dataclasses.replace(
        result, files={**result.files, name: config_hash} if name in result.files else result.files
    )


def source_note(name: str, results: Sequence[Result], run: RunFolder, left_out: Sequence[str] = ()) -> str:
    """Write the README of a published folder: what it is, where it comes from, how to show and check it.

    Args:
        name: the name of the folder.
        results: the results of all runs.
        run: the folder of one of them.
        left_out: names of the runs that had not ended and are not in the folder.
    """
    return fill_page(
        Path(__file__).with_name("published.md"),
        name=name,
        results=results,
        run=run,
        left_out=left_out,
        corpus=corpus_name(run.run.data.root),
        test=[*run.tests, "test"][0],
        commands=train_commands(EXPERIMENT, results),
        escape=escape_markdown,
    )
