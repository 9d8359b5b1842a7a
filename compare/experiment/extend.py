"""Train all runs of a finished experiment further, so that they are those of a longer budget.

A run that is continued at update N, with a learning rate that does not depend on the length of training, has
at update M the weights that training to M from the start gives. Only such runs are continued.

Nothing is trained before the whole folder has changed: experiment.json first says that an extension has
begun, then all runs get their new settings and lose what was made from their former last weights, then
experiment.json gets the new hash of the settings. A process that is killed in between leaves a folder that
``run`` refuses and the same extension continues; afterwards it is an unfinished experiment like any other.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from compare.config.run import Run, settings_hash
from compare.experiment.converge import LONGER
from compare.experiment.convergence_file import NAME as CONVERGENCE
from compare.experiment.folder import EXTENDED, EXTENSION, open_registry
from compare.experiment.prepare import prepare_data
from compare.experiment.run import InTurn, Launcher
from compare.results.records import FOLDER as ENSEMBLES
from compare.results.run_folder import RunFolder
from compare.results.store import (
    Result,
    read_registry,
    read_result,
    read_results,
    refuse_writing,
    write_json_lines,
)
from compare.system.cpu import tune_cpu
from compare.system.log import Reporter
from compare.system.signals import lock_folder
from compare.training.serialization import CHECKPOINTS, STATE
from data.files import remove_leftovers, write_atomically

logger = logging.getLogger(__name__)

INDEPENDENT_SCHEDULES = ("constant", "inverse-sqrt")
"""Schedules whose learning rate does not depend on ``train.max_updates``."""
NOT_ENDED = "has not ended: run the experiment to its end first"
"""What a message says of a run."""


def extend_experiment(
    folder: str | Path, updates: int, reporter: Reporter | None = None, *, launcher: Launcher | None = None
) -> list[Result]:
    """Train all runs of an experiment to ``updates`` updates, from where they have ended.

    The same call continues what was stopped.

    Args:
        folder: the folder of an experiment all of whose runs have ended.
        updates: updates of the whole training.
        reporter: shows the progress of training; by default log messages do.
        launcher: how the runs are finished; by default one after the other.

    Returns:
        The result of every run, in the order of the table.

    Raises:
        ValueError: runs that have not ended, that cannot be continued honestly, or other data than theirs.
        Interrupted: a signal arrived; everything is saved.
    """
    folder, reporter, launcher = Path(folder), reporter or Reporter(quiet=True), launcher or InTurn()
    runs = plan_extension(folder, updates)
    settings = runs[0].run
    tune_cpu(batch_tokens=settings.train.batch_tokens)
    with lock_folder(folder, wait=True):
        remove_leftovers(folder)
        prepared = prepare_data(settings, folder / "encoded")
        open_registry(folder, prepared, extending=True)  # refuses other data
        runs = plan_extension(folder, updates)  # another process may have changed the folder meanwhile
        _change_settings(folder, runs, updates)
    launcher.run_each(runs, prepared, reporter)
    launcher.time_all(folder, settings, prepared)
    return [read_result(run.folder) for run in runs]


def plan_extension(folder: str | Path, updates: int) -> list[RunFolder]:
    """List all runs of an experiment with the settings that ``extend_experiment`` gives them.

    Args:
        folder: the experiment.
        updates: those of each run in the end.

    Raises:
        ValueError: as ``extend_experiment``, except for the data, which are not read.
    """
    folder = Path(folder)
    refuse_writing(folder, "extend the experiment itself")
    results = read_results(folder)
    registry = read_registry(folder / "experiment.json") if (folder / "experiment.json").is_file() else {}
    if (begun := registry.get(EXTENSION)) not in (None, updates):
        raise ValueError(f"{folder}: an extension to {begun} updates has begun: continue it first")
    if unbegun := next((result.run for result in results if not (folder / result.run).is_dir()), None):
        raise ValueError(f"{folder / unbegun} {NOT_ENDED}")
    runs = [RunFolder.read(folder / result.run) for result in results]
    extended = [_with_updates(run, updates) for run in runs]
    if begun is None and any(run != after for run, after in zip(runs, extended, strict=True)):
        for run, result in zip(runs, results, strict=True):
            if result.status == "unfinished":
                raise ValueError(f"{run.folder} {NOT_ENDED}")
            _ensure_extensible(run.run, updates, str(run.folder))
            if result.status == "done" and not (run.folder / CHECKPOINTS / STATE).is_file():
                raise ValueError(f"{run.folder} has no {CHECKPOINTS}/{STATE}, so training cannot continue")
        for name in (LONGER, CONVERGENCE, ENSEMBLES):
            if (folder / name).exists():
                raise ValueError(f"{folder / name} is of the runs as they are now: move it away first")
    return extended


def _ensure_extensible(run: Run, updates: int, context: str) -> None:
    """Raise ValueError if continued training would differ from training to ``updates`` from the start."""
    train, schedule = run.train, run.model.optim.schedule
    if run.budget.match == "time":
        raise ValueError(f"{context}: budget.match = 'time' decides the updates of each model itself")
    if updates <= train.max_updates:
        raise ValueError(f"{context} has {train.max_updates:,} updates: --updates {updates} must be more")
    if schedule not in INDEPENDENT_SCHEDULES:
        raise ValueError(
            f"{context}: schedule = '{schedule}' has lowered the learning rate with train.max_updates = "
            f"{train.max_updates} in view, so that further updates are not those of a longer training: run "
            f"it from the start with --set train.max_updates={updates} --out, or with schedule = "
            f"{' or '.join(map(repr, INDEPENDENT_SCHEDULES))}"
        )
    if train.max_updates % train.valid_every:
        raise ValueError(
            f"{context}: the last validation, at update {train.max_updates}, is no multiple of "
            f"train.valid_every = {train.valid_every}, and a longer training would not have it: run it from "
            f"the start with --set train.max_updates={updates} --out"
        )


def _with_updates(run: RunFolder, updates: int) -> RunFolder:
    """Return the run with another ``train.max_updates``, and all else as it is."""
    train = replace(run.run.train, max_updates=updates)
    return replace(run, run=replace(run.run, train=train))


def _change_settings(folder: Path, runs: Sequence[RunFolder], updates: int) -> None:
    """Give all runs their new settings, and remove what was made from their former last weights.

    The caller holds the lock of ``folder``.

    Raises:
        Locked: another process works on a run; nothing is changed.
    """
    path = folder / "experiment.json"
    registry = read_registry(path)
    before = {RunFolder.read(run.folder).run.train.max_updates for run in runs}
    if EXTENSION not in registry and before == {updates}:
        return  # changed by an earlier call
    with ExitStack() as locks:
        for run in runs:
            locks.enter_context(lock_folder(run.folder))
        if EXTENSION not in registry:
            results = [result for run in runs if (result := read_result(run.folder)).status == "done"]
            ended = {each.run: each.updates for each in results if each.stopped_by != "patience"}
            registry[EXTENDED] = {**registry.get(EXTENDED, {}), **ended}
            registry[EXTENSION] = updates
            _write(path, registry)
            logger.info(f"{folder}: extended to {updates:,} updates: {', '.join(ended) or 'none'}")
            if patient := [each.run for each in results if each.run not in ended]:
                logger.info(f"ended by patience, as they will again: {', '.join(patient)}")
        for run in runs:
            (run.folder / "result.json").unlink(missing_ok=True)
            write_atomically(run.config, run.run.to_toml())
            for made in (run.weights, run.selection, run.likelihoods, run.external, run.speed):
                made.unlink(missing_ok=True)
            for test in run.tests:
                run.plain_output(test).unlink(missing_ok=True)
        registry["settings_hash"] = settings_hash(runs[0].run)
        del registry[EXTENSION]
        _write(path, registry)
        write_json_lines(folder)


def _write(path: Path, registry: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(registry, indent=2) + "\n")
