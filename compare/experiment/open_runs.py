"""Open the folder of an experiment, and decide once what is left to do for each run."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from compare.config.resolve import Run, find_difference, settings_hash
from compare.experiment.prepare import PreparedData
from compare.experiment.start import start_from_trunk, with_initial_weights
from compare.results.run_folder import RunFolder
from compare.results.store import Registry, Status, read_registry, read_result
from compare.system.messages import abbreviate, did_you_mean
from compare.training.checkpoints import CHECKPOINTS
from data.files import remove_leftovers, write_atomically
from data.locks import lock_folder
from data.vocabulary import load_pair

# The runs that a call asks for, and what is left to do of each.


@dataclass(frozen=True, kw_only=True)
class PlannedRun(RunFolder):
    """A requested run; its folder is empty or holds the same run."""

    status: Status | Literal["new"]
    """Status of its result; new: the run has not begun."""

    @property
    def has_ended(self) -> bool:
        """True if the run is done or has failed."""
        return self.status in ("done", "failed")


def open_runs(
    models: Sequence[Run], folder: Path, seeds: Sequence[int] = (), only: Sequence[str] = ()
) -> list[PlannedRun]:
    """Open the requested runs, ordered by seed; nothing is written.

    Raises:
        ValueError: an unknown label, missing initial weights, or a run with other settings in the folder.
    """
    chosen = choose_models(models, only)
    runs = [run.with_seed(seed) for seed in seeds or (models[0].train.seed,) for run in chosen]
    runs = [one_budget for run in runs for one_budget in run.by_budget()]
    if runs[0].train.init_from is not None:
        runs = list(map(with_initial_weights, runs))
    planned = [open_run(run, folder) for run in runs]
    for config in sorted(folder.glob("*/config.toml")):
        if config.parent.name not in {run.name for run in runs}:
            other = RunFolder.read(config.parent)
            if not other.run.is_external and (difference := find_difference(runs[0], other.run)):
                raise _other_settings(folder, f"{other.name} has {difference}")
    return planned


def choose_models(models: Sequence[Run], only: Sequence[str]) -> list[Run]:
    """Return the models with the labels ``only``, in which * stands for any text; without labels, all."""
    if not only:
        return list(models)
    labels = [run.label for run in models]
    chosen: set[str] = set()
    for label in only:
        matches = {name for name in labels if fnmatchcase(name, label)}
        if not matches:
            raise ValueError(
                f"--only: no model is labelled {abbreviate(label)}; {did_you_mean(label, labels)}"
            )
        chosen |= matches
    return [run for run in models if run.label in chosen]


def open_run(run: Run, folder: Path) -> PlannedRun:
    """Open one run; ValueError if its folder was made with other settings."""
    planned = PlannedRun(run=run, folder=folder / run.name, status="new")
    if not planned.config.exists():
        if (planned.folder / CHECKPOINTS).exists():
            raise ValueError(f"{planned.folder} has checkpoints but no config.toml: move the folder away")
        return planned
    existing = RunFolder.read(planned.folder, data_root=run.data.root).run
    if existing.train.init_hash == run.train.init_hash:  # the same weights may have moved
        existing = replace(existing, train=replace(existing.train, init_from=run.train.init_from))
    existing = replace(existing, bench=run.bench)  # timings may be repeated with other settings
    if existing != run:
        old, new = existing.to_toml().splitlines(), run.to_toml().splitlines()
        changes = list(unified_diff(old, new, lineterm="", n=0))
        was, now = (next((c[1:] for c in changes[2:] if c[0] == sign), "nothing") for sign in "-+")
        raise ValueError(
            f"{planned.folder} holds another experiment ({was} there, {now} here): "
            "choose another folder with --out, or delete this one"
        )
    return replace(planned, status=read_result(planned.folder).status)


def _other_settings(folder: Path, difference: str) -> ValueError:
    return ValueError(
        f"{folder} holds runs with other settings ({difference}), but all rows of a table must share the "
        "settings outside [[models]]: choose another folder with --out"
    )


# Writing into the folder.


@contextmanager
def locked_for_setup(folder: Path) -> Iterator[None]:
    """Lock the folder of an experiment while data are prepared in it.

    After a ValueError or OSError, new encoded data and folders are removed.
    """
    encoded = folder / "encoded"
    absent = [path for path in (encoded, folder, *folder.parents) if not path.exists()]
    try:
        with lock_folder(folder, wait=True):
            before = set(encoded.glob("*"))
            try:
                remove_leftovers(folder)
                yield
            except (ValueError, OSError):
                for path in set(encoded.glob("*")) - before:
                    shutil.rmtree(path, ignore_errors=True)
                raise
    except (ValueError, OSError):
        for path in absent:
            with suppress(OSError):
                path.rmdir()  # removes only empty folders
        raise


def open_registry(folder: Path, prepared: PreparedData, runs: Sequence[RunFolder]) -> Registry:
    """Read experiment.json and add runs; ValueError if its data or shared settings differ."""
    registry, shared = read_registry(folder), settings_hash(runs[0].run)
    data = {"data_hash": prepared.corpus.content_hash, "vocabulary_hash": prepared.vocabularies.content_hash}
    for key, value in data.items():
        if (old := getattr(registry, key) or value) != value:
            raise ValueError(
                f"{folder} was begun with other data ({key} {old[:12]}, now {value[:12]}): "
                "choose another folder with --out"
            )
        setattr(registry, key, value)
    if registry.settings_hash not in ("", shared):  # another process has registered runs but not begun them
        raise _other_settings(folder, f"settings_hash {registry.settings_hash[:12]}, here {shared[:12]}")
    registry.settings_hash = shared
    registry.runs = list(dict.fromkeys([*registry.runs, *(run.name for run in runs)]))
    for run in runs:
        asked = registry.asked_seeds.get(run.run.label, [])
        registry.asked_seeds[run.run.label] = sorted({*asked, run.run.train.seed})
    return registry


def begin_run(run: PlannedRun, prepared: PreparedData) -> None:
    """Create the folder of a run; config.toml comes last, so its presence means that all is there."""
    for folder in (run.folder, run.folder / CHECKPOINTS):
        remove_leftovers(folder)
    if run.status == "new":
        prepared.vocabularies.save(run.folder)
    elif load_pair(run.folder).content_hash != prepared.vocabularies.content_hash:
        raise ValueError(
            f"{run.folder} has the vocabulary of another run: restore its own, or delete the folder"
        )
    write_atomically(run.config, run.run.to_toml())  # also if the run continues: the corpus may have moved
    start_from_trunk(run)
