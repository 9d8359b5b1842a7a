"""Run an experiment: train, decode, score and time every row; go on where an earlier call stopped."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from compare.checkpoint import first_line
from compare.config import Experiment
from compare.execute import Row, execute, known_result, pick_device
from compare.memory import keep_freed_memory
from compare.models import resolve
from compare.prepare import Prepared, prepare
from compare.progress import Reporter
from compare.results import Result, read_result, read_results, save_result, write_view
from compare.train import Diverged
from compare.version import code_version
from data.files import write_atomically


def plan(experiment: Experiment, folder: Path, place: str = "config") -> list[Row]:
    """The rows of an experiment; fails on whatever is wrong with any of them before work starts."""
    rows = []
    for model in experiment.models:
        settings = resolve(model, place).settings()
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
        reporter.say(f"{folder}: all {len(rows)} rows have ended; delete a row's folder to run it again")
        return read_results(folder)
    with _nothing_left_of_a_mistake(folder):
        prepared = prepare(experiment, folder / "encoded", reporter.say)
        registry = _registry(folder, prepared)
    _register(folder, registry, rows, prepared)
    for number, row in enumerate(rows, start=1):
        reporter.say(f"[{number}/{len(rows)}] {row.name}: {'done before' if _ended(row) else 'start'}")
        if not _ended(row):
            _begin(row, prepared)
            with reporter.logging_to(row.folder / "log.txt"):
                _finish(row, prepared, reporter)
    return read_results(folder)


def check_experiment(experiment: Experiment, folder: Path, place: str = "config") -> list[Row]:
    """Find the mistakes in settings and folder; returns the rows that ``run_experiment`` would run."""
    pick_device(experiment.train.device)
    rows = plan(experiment, folder, place)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder: choose another place with --out")
    for row in rows:
        _refuse_other(row)
    if (folder / "experiment.json").is_file():
        read_results(folder)  # names what is damaged
    return rows


def rehearse(
    experiment: Experiment, folder: Path, say: Callable[[str], None], place: str = "config"
) -> list[Row]:
    """Check settings, folder and data as ``run_experiment`` would, and leave nothing behind."""
    rows = check_experiment(experiment, folder, place)
    with TemporaryDirectory() as encoded:
        _registry(folder, prepare(experiment, Path(encoded), say))
    return rows


def _finish(row: Row, prepared: Prepared, reporter: Reporter) -> None:
    """Bring one row to its end and write its result."""
    try:
        result = execute(row, prepared, reporter)
    except Diverged as error:
        reporter.say(f"{row.name}: failed: {error}")
        result = dataclasses.replace(known_result(row, prepared), status="failed", reason=str(error))
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        reason = f"out of memory: {first_line(error)}"
        reporter.say(f"{row.name}: {reason}; the same command tries again")
        result = dataclasses.replace(known_result(row, prepared), reason=reason)
    save_result(row.folder, result)
    write_view(row.folder.parent)


def _out_of_memory(error: Exception) -> bool:
    """Whether there was no room for a tensor, which torch says of the CPU in words alone."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _ended(row: Row) -> bool:
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


def _refuse_other(row: Row) -> None:
    """A folder made with other settings is neither continued nor overwritten."""
    path = row.folder / "config.toml"
    if not path.is_file() and (row.folder / "checkpoints").exists():
        raise ValueError(f"{row.folder} has checkpoints but no config.toml to say of what: move it away")
    if path.is_file() and (old := path.read_text(encoding="utf-8", errors="replace")) != row.config:
        changes = list(unified_diff(old.splitlines(), row.config.splitlines(), lineterm="", n=0))
        was, now = (next((c[1:] for c in changes[2:] if c[0] == sign), "nothing") for sign in "-+")
        raise ValueError(
            f"{row.folder} holds another experiment ({was} there, {now} here): "
            "choose another folder with --out, or delete this one"
        )


def _registry(folder: Path, prepared: Prepared) -> dict[str, Any]:
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


def _register(folder: Path, registry: dict[str, Any], rows: list[Row], prepared: Prepared) -> None:
    """Note the rows of an experiment, for later calls may add some, and the sources it is tested on."""
    first = prepared.corpus.splits[prepared.corpus.tests[0]]
    write_atomically(folder / "test.src", "".join(f"{line}\n" for line in first.src))  # for plots and people
    runs = dict.fromkeys([*registry.get("runs", []), *(row.name for row in rows)])
    registry = {**registry, "runs": list(runs)}
    write_atomically(folder / "experiment.json", json.dumps(registry, indent=2) + "\n")


def _begin(row: Row, prepared: Prepared) -> None:
    """Make a row's folder; its config.toml, written last, tells that the rest is there."""
    if not (row.folder / "config.toml").is_file():
        prepared.vocabularies.save(row.folder)
        write_atomically(row.folder / "config.toml", row.config)
