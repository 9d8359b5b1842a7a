"""The queue of ``make campaign``: a TOML file of ``[[runs]]`` tables, such as configs/campaign/queue.toml.

Each table names an experiment, seeds, and the minutes that a run of each model takes on one core. With
``name`` and ``set`` it is the experiment under another name with other settings, as an ablation needs.
"""

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare.config.parse import load_experiment, read_toml
from compare.config.run import find_difference, find_model_difference, resolve_models
from compare.config.sections import Experiment, run_name
from compare.results.result import Status
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.system.messages import abbreviate, did_you_mean
from compare.system.signals import LOCK
from compare.training.metrics_log import read_metrics

logger = logging.getLogger(__name__)

KEYS = ("config", "seeds", "minutes")
OPTIONAL = ("name", "set")


def describe_error(error: Exception) -> str:
    """Return "file: reason" for an error of the operating system that names a file, else the message."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of ``folder``; nothing is written, so it may be read-only."""
    try:
        with (folder / LOCK).open("rb") as file:
            try:
                import fcntl
            except ImportError:  # Windows, where what another process has locked cannot be read
                file.read(1)
            else:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that several may ask at once
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedRun:
    """One model and one seed of an experiment."""

    experiment: Experiment
    config: Path
    """The file of the experiment."""
    label: str
    seed: int
    minutes: float
    """Expected time on one core."""
    runs: Path
    """Folder of the experiments' folders."""
    rows: Path
    """Folder of the experiments' published rows."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.runs / self.experiment.name / run_name(self.label, self.seed)

    @property
    def name(self) -> str:
        """experiment/label-seed<k>."""
        return f"{self.experiment.name}/{self.folder.name}"

    @property
    def row(self) -> Path:
        """Folder of the published row."""
        return self.rows / self.experiment.name / self.folder.name

    @property
    def is_done_elsewhere(self) -> bool:
        """Whether its row is there although the run was not begun here: another machine has finished it.

        Raises:
            ValueError: the row has other settings than the queue asks for, or is damaged.
        """
        begun = (self.folder / "config.toml").is_file()
        if begun or not self.row.is_dir() or read_result(self.row).status != "done":
            return False
        found = RunFolder.read(self.row).run
        models = resolve_models(self.experiment, str(self.config), other_machine=True)
        run = next(run for run in models if run.label == self.label).with_seed(self.seed)
        if run.budget.match == "none":
            difference = find_difference(run, found) or find_model_difference(run, found)
        else:  # the amount, and with it sizes or updates, is decided from the data, later
            decided = dataclasses.replace(run.budget, amount=run.budget.amount or found.budget.amount)
            difference = find_difference(dataclasses.replace(run, budget=decided), found)
        if difference:
            raise ValueError(
                f"{self.row} has other settings ({difference}): delete it to train it again, "
                "or take another folder of rows"
            )
        return True

    @property
    def status(self) -> Status:
        """How the run has ended, here or elsewhere, or unfinished; ValueError if its result is damaged."""
        return "done" if self.is_done_elsewhere else read_result(self.folder).status

    @property
    def is_locked(self) -> bool:
        """Whether a process is working on the run."""
        return is_locked(self.folder)

    @property
    def device(self) -> str:
        """The device on which this machine would train the run."""
        return resolve_models(self.experiment, str(self.config))[0].train.device

    @property
    def begun_on(self) -> str:
        """The device on which the run was begun, or would be."""
        begun = (self.folder / "config.toml").is_file()
        return RunFolder.read(self.folder).run.train.device if begun else self.device


def read_queue(
    path: Path, runs: Path, data: str = "", rows: Path | None = None, only: Sequence[str] = ()
) -> list[QueuedRun]:
    """Read a queue.

    Args:
        path: the TOML file; experiments are named relative to its folder.
        runs: folder of the experiments' folders.
        data: folder of the corpora, each under the last part of ``data.root`` of its experiment; empty: where
            the experiments say.
        rows: folder of the experiments' published rows; by default ``runs``/rows.
        only: names of experiments, whose runs alone are returned; by default all.

    Raises:
        OSError: a file cannot be read.
        ValueError: a missing, unknown or repeated entry, a model that an experiment does not have, one name
            for two experiments, or a name in ``only`` that no experiment has.
    """
    content = read_toml(path)
    entries = content.pop("runs", [])
    if content:
        raise ValueError(f"{path}: unknown key {next(iter(content))!r}: a queue has [[runs]] tables only")
    if not isinstance(entries, list):
        raise ValueError(f"{path}: runs must be [[runs]] tables, found {abbreviate(entries)}")
    queue: dict[str, QueuedRun] = {}
    experiments: dict[str, Experiment] = {}
    for number, entry in enumerate(entries):
        context = f"{path}: runs[{number}]"
        for run in _read_entry(entry, path.parent, data, context, runs=runs, rows=rows or runs / "rows"):
            if run.name in queue:
                raise ValueError(f"{context}: {run.name} is in the queue already")
            name = run.experiment.name
            if experiments.setdefault(name, run.experiment) != run.experiment:
                raise ValueError(f"{context}: {name} has other settings in an earlier table: name this one")
            queue[run.name] = run
    if not queue:
        raise ValueError(f"{path} holds no [[runs]]")
    for name in only:
        if name not in experiments:
            raise ValueError(f"{path} has no experiment {name}; {did_you_mean(name, list(experiments))}")
    return [run for run in queue.values() if not only or run.experiment.name in only]


def _read_entry(entry: Any, folder: Path, data: str, context: str, **folders: Path) -> list[QueuedRun]:
    """Read one ``[[runs]]`` table: all its models from the first seed, then from the next."""
    if not isinstance(entry, dict):
        raise ValueError(f"{context} must be a [[runs]] table, found {abbreviate(entry)}")
    if not set(KEYS) <= entry.keys() <= {*KEYS, *OPTIONAL}:
        raise ValueError(
            f"{context} must have {', '.join(KEYS)}, and may have {' and '.join(OPTIONAL)}, "
            f"found {', '.join(entry) or 'nothing'}"
        )
    file, seeds, minutes = (entry[key] for key in KEYS)
    if not isinstance(file, str):
        raise ValueError(f"{context}: config must name a file, found {abbreviate(file)}")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ValueError(f"{context}: seeds must be whole numbers from 0 on, such as [1, 2], found {seeds}")
    if not isinstance(minutes, dict) or not minutes or not all(map(_is_duration, minutes.values())):
        raise ValueError(f"{context}: minutes must hold a number for each model, above 0, found {minutes}")
    config = folder / file
    experiment = _read_experiment(config, entry, context)
    if data and experiment.data.root:
        root = Path(data).resolve() / Path(experiment.data.root).name
        section = dataclasses.replace(experiment.data, root=str(root))
        experiment = dataclasses.replace(experiment, data=section)
    labels = [model.label for model in experiment.models]
    for label in minutes:
        if label not in labels:
            raise ValueError(f"{context}: {config.name} has no model {label}; {did_you_mean(label, labels)}")
    fields: dict[str, Any] = {"experiment": experiment, "config": config, **folders}
    return [
        QueuedRun(label=label, seed=seed, minutes=expected, **fields)
        for seed in seeds
        for label, expected in minutes.items()
    ]


def _read_experiment(config: Path, entry: dict[str, Any], context: str) -> Experiment:
    """Read the experiment of a table, with its ``set`` and under its ``name``."""
    settings, name = entry.get("set", []), entry.get("name", config.stem)
    if not isinstance(settings, list) or not all(isinstance(each, str) for each in settings):
        raise ValueError(
            f'{context}: set must be a list such as ["train.label_smoothing=0"], found {abbreviate(settings)}'
        )
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise ValueError(f"{context}: name must be that of a folder, found {abbreviate(name)}")
    if settings and "name" not in entry:
        raise ValueError(f"{context}: set needs a name, for {config.stem} is the experiment without it")
    return dataclasses.replace(load_experiment(config, settings), name=name)


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


def describe(run: QueuedRun) -> dict[str, Any]:
    """Describe how far a run is, as a row of a table; nothing is written."""
    row = {"run": run.name, "status": "damaged", "minutes planned": run.minutes}
    try:
        log = (run.row if run.is_done_elsewhere else run.folder) / "metrics.jsonl"
        lines = read_metrics(log) if log.is_file() else []
        last = lines[-1] if lines else {}
        row["status"] = _status(run, last)
    except (ValueError, OSError) as error:
        logger.error(f"{run.name}: {describe_error(error)}")
        return row | {"minutes": None, "validation BLEU": None}
    validations = [line["bleu"] for line in lines if line["kind"] == "valid" and line["bleu"] is not None]
    best = last["bleu"] if last.get("kind") == "final" else max(validations, default=None)
    seconds = [last.get(name, 0.0) for name in ("seconds", "validation_s", "checkpoint_s")]
    return row | {
        "minutes": round(sum(seconds) / 60, 1) if lines else None,
        "validation BLEU": None if best is None else round(best, 2),
    }


def _status(run: QueuedRun, last: dict[str, Any]) -> str:
    """Return done, failed, waiting, or where the run is, ``last`` being the last line of its log."""
    if run.status != "unfinished":
        return run.status
    if not run.folder.is_dir():
        return "waiting"
    state = "running" if run.is_locked else "stopped"
    return f"{state} at update {last.get('update', 0):,} of {run.experiment.train.max_updates:,}"
