"""Publication of an experiment: what others need to score its translations again and to check its figures."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Literal

from compare.config.parse import SCHEMA
from compare.config.resolve import Run, runs_to_toml
from compare.experiment.tune import BEST, TRIALS_FILE
from compare.report.result_table import find_summary
from compare.report.table_formats import escape_markdown, fill_page
from compare.results.run_folder import RunFolder
from compare.results.store import (
    SUMMARY,
    Result,
    of_budget,
    read_registry,
    read_results,
    results_hash,
    save_result,
    train_commands,
    write_record,
)
from compare.system.plugins import code_version
from compare.training.checkpoints import WEIGHTS, round_weights
from data.files import check_vacant, new_folder
from data.text import hash_decompressed, pack_gzip, read_decompressed
from data.vocabulary import FILE_NAME

EXPERIMENT = "experiment.toml"


def publish_experiment(
    folder: str | Path,
    out: str | Path,
    *,
    tuning: str | Path | None = None,
    replace: bool = False,
    weights: Literal["fp32", "bf16"] | None = None,
    data_root: str = "",
) -> Path:
    """Copy the results of an experiment into a new folder that others can check.

    Each run keeps its settings, training log, timings and result, and, compressed, its translations and
    vocabularies. Names stand in place of the paths of this machine, so the hash of config.toml is renewed.
    Runs without a result are not copied, but still listed. The folder appears complete or not at all. Every
    command shows it, and none writes into it.

    Args:
        folder: the folder of the experiment.
        out: the new folder.
        tuning: the folder of the search that the settings come from; by default that of the experiment, where
            it has one. Its trials are copied.
        replace: delete the published results that ``out`` holds.
        weights: also copy the weights of each model's first finished seed, of its largest budget: as they
            are, or rounded to bf16, which halves them; None: no weights.
        data_root: the folder of the corpus now, whose last part names it in what is published, and with which
            means and outcome are computed again; empty: that of the settings.

    Returns:
        ``out``.

    Raises:
        OSError: a file cannot be read or written, or ``out`` is not empty.
        ValueError: no run of a model has a result, a file has changed since its result was recorded, no
            search in ``tuning``, or something other than published results in ``out``.
    """
    folder, out = Path(folder), Path(out)
    check_vacant(out, replace=replace)
    if out.is_dir() and any(out.iterdir()) and not read_registry(out).published:
        raise ValueError(f"{out} holds no published results: only published results can be replaced")
    trials = Path(tuning or folder) / TRIALS_FILE
    if tuning and not trials.exists():
        raise ValueError(f"{tuning} has no {TRIALS_FILE}: give the folder that `attnbench tune` wrote")
    results = read_results(folder)
    ended = [result for result in results if (folder / result.run / "result.json").is_file()]
    # The first run of a model is one that is done, of the largest budget.
    ended.sort(key=lambda result: (result.status != "done", -(result.budget or 0)))
    runs = [RunFolder.read(folder / result.run, data_root=data_root) for result in ended]
    if all(run.run.is_external for run in runs):
        raise ValueError(f"{folder}: no run of a model has ended: nothing to publish")
    firsts = list({run.run.label: run for run in reversed(runs)}.values())
    registry = read_registry(folder)
    corpus = corpus_name(runs[0].run.data.root)
    registry.published = {"corpus": corpus, "code_version": code_version()}
    with new_folder(out, replace=replace) as target:
        for run, result in zip(runs, ended, strict=True):
            _copy_run(run, result, target / run.name, weights=weights if run in firsts else None)
        registry.write(target)
        (target / EXPERIMENT).write_bytes(_experiment_toml(runs).encode())
        note = source_note(out.resolve().name, ended, runs[0], weights)
        (target / "README.md").write_bytes(note.encode())
        if trials.exists():
            (target / TRIALS_FILE).write_bytes(trials.read_bytes())
        if (best := trials.with_name(BEST)).exists():
            (target / BEST).write_bytes(_without_paths(best.read_text(encoding="utf-8")).encode())
        if ended[0].status == "done":
            summary = find_summary(folder, of_budget(results), data_root)
            if not summary.lacks_texts:  # it names a path of this machine
                published = results_hash(of_budget(read_results(target)))
                write_record(target / SUMMARY, dataclasses.replace(summary, results=published))
    return out


def _copy_run(run: RunFolder, result: Result, target: Path, *, weights: str | None) -> None:
    target.mkdir()
    files = run.files()
    for name, recorded in result.files.items():
        content_hash = hash_decompressed(files[name]) if name in files else None
        if content_hash != recorded and (content_hash or name != WEIGHTS):
            raise ValueError(
                f"{run.folder / name} has changed since its result was computed: restore it, "
                f"or look at `attnbench check {quote(str(run.folder.parent))}`"
            )
    for name, path in files.items():
        if path == run.weights and not weights:
            continue
        content = read_decompressed(path)
        if path == run.config:
            content = published_run(run).to_toml().encode()
            result = with_hash(result, name, content)
        if path == run.weights and weights == "bf16":
            content = round_weights(content)
            result = with_hash(result, name, content)
        is_packed = name == FILE_NAME or name.endswith(".hyp")
        copy = target / (f"{name}.gz" if is_packed else name)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(pack_gzip(content) if is_packed else content)
    save_result(target, result)


def _experiment_toml(runs: Sequence[RunFolder]) -> str:
    models = [published_run(run, f"{run.name}/") for run in runs if not run.run.is_external]
    systems = [
        {"label": run.run.label} | {test: f"{run.name}/{test}.hyp.gz" for test in run.tests}
        for run in runs
        if run.run.is_external
    ]
    return f"schema = {SCHEMA}\n\n{runs_to_toml(models, systems)}"


# Settings of a published run: names stand in place of the paths of this machine.


def _without_paths(toml: str) -> str:
    """Put the last part of each absolute path in its place."""

    def shorten(text: re.Match[str]) -> str:
        value = json.loads(text[0])
        return json.dumps(Path(value).name, ensure_ascii=False) if Path(value).is_absolute() else text[0]

    return re.sub(r'"(?:[^"\\]|\\.)*"', shorten, toml)


def published_run(run: RunFolder, prefix: str = "") -> Run:
    """Return settings with names instead of paths; ``prefix`` begins the names of mask files."""
    settings, init_from = run.run, run.run.train.init_from
    if init_from is not None:
        init_from = "/".join(Path(init_from).parts[-2:])  # experiment and run
    return dataclasses.replace(
        settings,
        data=dataclasses.replace(settings.data, root=corpus_name(settings.data.root)),
        train=dataclasses.replace(settings.train, init_from=init_from),
        model=settings.model.override({Path(name).stem: f"{prefix}{name}" for name in run.masks()}),
    )


def corpus_name(root: str) -> str:
    """Return the last part of ``data.root``, the same on every machine; empty: built in."""
    return Path(root).name


def with_hash(result: Result, name: str, content: bytes) -> Result:
    """Return ``result`` with the hash of new content of one of its files, if it lists that file."""
    changed = {name: hashlib.sha256(content).hexdigest()} if name in result.files else {}
    return dataclasses.replace(result, files={**result.files, **changed})


def source_note(name: str, results: Sequence[Result], run: RunFolder, weights: str | None) -> str:
    """Write the README of a published folder: content, origin, and how to show and check it.

    ``run`` is the folder of one of the runs, which has weights if any has.
    """
    return fill_page(
        Path(__file__).with_name("published.md"),
        name=name,
        results=results,
        run=run,
        weights=weights,
        corpus=corpus_name(run.run.data.root),
        test=[*run.tests, "test"][0],
        commands=train_commands(EXPERIMENT, results),
        escape=escape_markdown,
    )
