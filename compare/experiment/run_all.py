"""Run an experiment: train, decode, score and time every row; go on where an earlier call stopped."""

import dataclasses
import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from compare.config.resolve_model import resolve_model
from compare.config.sections import Experiment
from compare.experiment.budget import calibrate, each_model, find_reference, match_budget
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.resolve import resolve_precision
from compare.experiment.run_one import run_one, unfinished_result
from compare.results.result import run_name
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_result, read_results, save_result, write_json_lines
from compare.system.cpu import tune_cpu
from compare.system.device import pick_device
from compare.system.hints import first_line
from compare.system.log import log_to_file
from compare.system.progress import Reporter
from compare.system.version import code_version
from compare.training.trainer import Diverged
from data.text.files import write_atomically
from data.vocabulary import load_pair

logger = logging.getLogger(__name__)


def plan(
    experiment: Experiment, folder: Path, seeds: Sequence[int] = (), place: str = "config"
) -> list[RunFolder]:
    """The runs of an experiment whose budget is not yet met; fails on whatever is wrong with any of them."""
    return _spell_out(each_model(experiment), folder, seeds, place)


def _spell_out(
    models: Sequence[Experiment], folder: Path, seeds: Sequence[int], place: str
) -> list[RunFolder]:
    """The runs of experiments of one model each, with every setting written out, seed after seed."""
    runs = []
    for seed in seeds or (models[0].train.seed,):
        for single in models:
            (row,) = single.models
            settings = resolve_model(row, place).settings()
            given = {name: value for name, value in settings.items() if value is not None}
            train = dataclasses.replace(single.train, seed=seed)
            full = dataclasses.replace(
                single, train=train, models=(dataclasses.replace(row, overrides=given),)
            )
            runs.append(RunFolder(experiment=full, folder=folder / run_name(row.label, seed)))
    return runs


def run_experiment(
    experiment: Experiment,
    folder: Path,
    reporter: Reporter,
    *,
    seeds: Sequence[int] = (),
    place: str = "config",
) -> list[Result]:
    """Bring every run of ``experiment`` to its end in ``folder`` and return the rows.

    Runs that are done stay as they are; one that was stopped goes on from its last state.

    Args:
        experiment: the models and what they share.
        folder: where the runs are kept.
        reporter: shows how far the training is.
        seeds: each model is trained once from each; by default from ``[train] seed`` alone.
        place: what to name in errors of the settings.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
        Interrupted: by a signal; everything is saved.
    """
    code_version()  # of the sources as they are now: they may be edited while a long run goes on
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    experiment = resolve_precision(experiment)
    runs = validate_experiment(experiment, folder, seeds, place)
    if experiment.budget.match == "none" and all(_ended(run) for run in runs):
        logger.info(f"{folder}: all {len(runs)} rows have ended; delete a row's folder to run it again")
        return read_results(folder)
    with _nothing_left_of_a_mistake(folder):
        prepared = prepare_data(experiment, folder / "encoded")
        registry = _registry(folder, prepared)
        if experiment.budget.match == "time":
            known = registry.get("seconds_per_update", {})
            registry["seconds_per_update"] = calibrate(experiment, prepared, known)
        if experiment.budget.match != "none":
            models = match_budget(experiment, prepared, registry.get("seconds_per_update", {}))
            runs = _refuse_others(_spell_out(models, folder, seeds, place))
    _register(folder, registry, runs, prepared)
    for number, run in enumerate(runs, start=1):
        logger.info(f"[{number}/{len(runs)}] {run.name}: {'done before' if _ended(run) else 'start'}")
        if not _ended(run):
            _begin(run, prepared)
            with log_to_file(run.folder / "log.txt"):
                _finish(run, prepared.for_seed(run.experiment.train.seed), reporter)
    return read_results(folder)


def validate_experiment(
    experiment: Experiment, folder: Path, seeds: Sequence[int] = (), place: str = "config"
) -> list[RunFolder]:
    """Find the mistakes in settings and folder; returns the runs, their budget not yet met."""
    pick_device(experiment.train.device)
    find_reference(experiment)
    runs = plan(experiment, folder, seeds, place)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder: choose another place with --out")
    if experiment.budget.match == "none":
        _refuse_others(runs)
    if (folder / "experiment.json").is_file():
        read_results(folder)  # names what is damaged
    return runs


def dry_run(
    experiment: Experiment,
    folder: Path,
    *,
    seeds: Sequence[int] = (),
    place: str = "config",
) -> list[RunFolder]:
    """Check settings, folder and data as ``run_experiment`` would, and leave nothing behind."""
    experiment = resolve_precision(experiment)
    runs = validate_experiment(experiment, folder, seeds, place)
    with TemporaryDirectory() as encoded:
        prepared = prepare_data(experiment, Path(encoded))
        _registry(folder, prepared)
        if experiment.budget.match in ("params", "flops"):  # for time the models would have to be timed
            runs = _spell_out(match_budget(experiment, prepared, {}), folder, seeds, place)
    return runs


def _finish(row: RunFolder, prepared: PreparedData, reporter: Reporter) -> None:
    """Bring one row to its end and write its result."""
    try:
        result = run_one(row, prepared, reporter)
    except Diverged as error:
        logger.error(f"{row.name}: failed: {error}")
        result = dataclasses.replace(unfinished_result(row, prepared), status="failed", reason=str(error))
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        reason = f"out of memory: {first_line(error)}"
        logger.error(f"{row.name}: {reason}; the same command tries again")
        result = dataclasses.replace(unfinished_result(row, prepared), reason=reason)
    save_result(row.folder, result)
    write_json_lines(row.folder.parent)


def _out_of_memory(error: Exception) -> bool:
    """Whether there was no room for a tensor, which torch says of the CPU in words alone."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _ended(row: RunFolder) -> bool:
    return row.folder.is_dir() and read_result(row.folder).status != "unfinished"


@contextmanager
def _nothing_left_of_a_mistake(folder: Path) -> Iterator[None]:
    """Where data or vocabulary cannot be used, take away what was encoded and every folder made for it."""
    encoded = folder / "encoded"
    absent = [path for path in (encoded, folder, *folder.parents) if not path.exists()]
    before = set(encoded.glob("*"))
    try:
        yield
    except (ValueError, OSError):
        for path in set(encoded.glob("*")) - before:
            shutil.rmtree(path, ignore_errors=True)
        for path in absent:
            with suppress(OSError):
                path.rmdir()  # only what is empty
        raise


def _refuse_others(runs: list[RunFolder]) -> list[RunFolder]:
    """Each of ``runs``, if none of their folders was made with other settings."""
    for run in runs:
        _refuse_other(run)
    return runs


def _refuse_other(row: RunFolder) -> None:
    """A folder made with other settings is neither continued nor overwritten."""
    path = row.folder / "config.toml"
    if not path.exists() and (row.folder / "checkpoints").exists():
        raise ValueError(f"{row.folder} has checkpoints but no config.toml to say of what: move it away")
    if path.exists() and (old := path.read_text(encoding="utf-8", errors="replace")) != row.config:
        changes = list(unified_diff(old.splitlines(), row.config.splitlines(), lineterm="", n=0))
        was, now = (next((c[1:] for c in changes[2:] if c[0] == sign), "nothing") for sign in "-+")
        raise ValueError(
            f"{row.folder} holds another experiment ({was} there, {now} here): "
            "choose another folder with --out, or delete this one"
        )


def _registry(folder: Path, prepared: PreparedData) -> dict[str, Any]:
    """What experiment.json says, or would say at first; refuses a folder begun with other data."""
    path = folder / "experiment.json"
    data = {"data_hash": prepared.corpus.content_hash, "vocabulary_hash": prepared.vocabularies.content_hash}
    if not path.is_file():
        return {"runs": [], **data}
    known: dict[str, Any] = json.loads(path.read_bytes())
    for key, value in data.items():
        if known.get(key) != value:
            raise ValueError(
                f"{folder} was begun with other data ({key} {str(known.get(key))[:12]}, now {value[:12]}): "
                "choose another folder with --out"
            )
    return known


def _register(folder: Path, registry: dict[str, Any], rows: list[RunFolder], prepared: PreparedData) -> None:
    """Note the rows of an experiment, for later calls may add some, and the sources it is tested on."""
    first = prepared.corpus.splits[prepared.corpus.tests[0]]
    write_atomically(folder / "test.src", "".join(f"{line}\n" for line in first.src))  # for plots and people
    runs = dict.fromkeys([*registry.get("runs", []), *(row.name for row in rows)])
    registry = {**registry, "runs": list(runs)}
    write_atomically(folder / "experiment.json", json.dumps(registry, indent=2) + "\n")


def _begin(row: RunFolder, prepared: PreparedData) -> None:
    """Make a row's folder; its config.toml, written last, tells that the rest is there."""
    if not (row.folder / "config.toml").is_file():
        prepared.vocabularies.save(row.folder)
        write_atomically(row.folder / "config.toml", row.config)
    elif load_pair(row.folder).content_hash != prepared.vocabularies.content_hash:
        raise ValueError(
            f"{row.folder} has the vocabulary of another run: put its own back, or delete the folder"
        )
