"""Run an experiment: train, decode, score and time every row; go on where an earlier call stopped."""

import dataclasses
import json
import shutil
from difflib import unified_diff
from pathlib import Path
from typing import Any

from compare.config import Experiment
from compare.execute import Row, execute, known_result, pick_device
from compare.files import write_atomically
from compare.memory import keep_freed_memory
from compare.models import resolve
from compare.prepare import Prepared, prepare
from compare.progress import Reporter
from compare.results import Result, read_result, read_results, save_result, write_view
from compare.train import Diverged
from compare.version import code_version


def plan(experiment: Experiment, folder: Path, place: str = "config") -> list[Row]:
    """The rows of an experiment; fails on whatever is wrong with any of them before work starts."""
    rows = []
    for model in experiment.models:
        blueprint = resolve(model, place)
        settings = {**dataclasses.asdict(blueprint.architecture), **dataclasses.asdict(blueprint.optim)}
        given = {name: value for name, value in settings.items() if value is not None}
        full = dataclasses.replace(model, overrides=given)
        single = dataclasses.replace(experiment, models=(full,))
        rows.append(Row(experiment=single, folder=folder / f"{model.label}-seed{experiment.train.seed}"))
    return rows


def run_experiment(
    experiment: Experiment, folder: Path, reporter: Reporter, place: str = "config"
) -> list[Result]:
    """Bring every row of ``experiment`` to its end in ``folder`` and return the rows.

    Rows that are done stay as they are; a row that was stopped goes on from its last state.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
        Interrupted: by a signal; everything is saved.
    """
    code_version()  # of the sources as they are now: they may be edited while a long run goes on
    keep_freed_memory()
    rows = check_experiment(experiment, folder, place)
    if all(_ended(row) for row in rows):
        reporter.say(f"{folder}: all {len(rows)} rows are done; delete a row's folder to run it again")
        return read_results(folder)
    folder.mkdir(parents=True, exist_ok=True)
    prepared = prepare(experiment, folder / "encoded", reporter.say)
    _register(folder, rows, prepared)
    for number, row in enumerate(rows, start=1):
        reporter.say(f"[{number}/{len(rows)}] {row.name}: {'done before' if _ended(row) else 'start'}")
        if not _ended(row):
            _begin(row, prepared)
            with reporter.logging_to(row.folder / "log.txt"):
                _finish(row, prepared, reporter)
    return read_results(folder)


def check_experiment(experiment: Experiment, folder: Path, place: str = "config") -> list[Row]:
    """Find the user's mistakes before any work starts; returns the rows that ``run_experiment`` would run."""
    pick_device(experiment.train.device)
    rows = plan(experiment, folder, place)
    for row in rows:
        _refuse_other(row)
    return rows


def _finish(row: Row, prepared: Prepared, reporter: Reporter) -> None:
    """Bring one row to its end and write its result."""
    try:
        result = execute(row, prepared, reporter)
    except Diverged as error:
        reporter.say(f"{row.name}: failed: {error}")
        result = dataclasses.replace(known_result(row, prepared), status="failed", reason=str(error))
    save_result(row.folder, result)
    write_view(row.folder.parent)


def _ended(row: Row) -> bool:
    return row.folder.is_dir() and read_result(row.folder).status != "unfinished"


def _refuse_other(row: Row) -> None:
    """A folder made with other settings is neither continued nor overwritten."""
    path = row.folder / "config.toml"
    if path.is_file() and (old := path.read_text(encoding="utf-8")) != row.config:
        changes = list(unified_diff(old.splitlines(), row.config.splitlines(), lineterm="", n=0))
        was, now = (next((c[1:] for c in changes[2:] if c[0] == sign), "nothing") for sign in "-+")
        raise ValueError(
            f"{row.folder} holds another experiment ({was} there, {now} here): "
            "choose another folder with --out, or delete this one"
        )


def _register(folder: Path, rows: list[Row], prepared: Prepared) -> None:
    """Note the rows and the data of an experiment; later calls may add rows but not change the data."""
    path = folder / "experiment.json"
    data = {"data_hash": prepared.corpus.content_hash, "vocabulary_hash": prepared.vocabularies.content_hash}
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"runs": [], **data}
    for key, value in data.items():
        if known.get(key) != value:
            raise ValueError(
                f"{folder} was begun with other data ({key} {str(known.get(key))[:12]}, now {value[:12]}): "
                "choose another folder with --out"
            )
    first = prepared.corpus.splits[prepared.corpus.tests[0]]
    write_atomically(folder / "test.src", "".join(f"{line}\n" for line in first.src))  # for plots and people
    known["runs"] += [row.name for row in rows if row.name not in known["runs"]]
    write_atomically(path, json.dumps(known, indent=2) + "\n")


def _begin(row: Row, prepared: Prepared) -> None:
    """Make a row's folder; its config.toml, written last, tells that the rest is there."""
    if not (row.folder / "config.toml").is_file():
        shutil.rmtree(row.folder, ignore_errors=True)
        row.folder.mkdir(parents=True)
        prepared.vocabularies.save(row.folder)
        write_atomically(row.folder / "config.toml", row.config)
