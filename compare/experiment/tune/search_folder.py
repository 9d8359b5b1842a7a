"""The folder of a search: tune.json, which describes it, and the refusal of another search's folder."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compare.config.shared_settings import shared_settings
from compare.experiment.prepare import PreparedData
from compare.experiment.tune.journal import JOURNAL, Journal
from compare.experiment.tune.plan import Search
from compare.experiment.tune.trial import remove_checkpoints, trial_folder
from compare.system.hints import abbreviate
from compare.system.locks import lock_folder
from data.text.files import parse_json, read_bytes, write_atomically

DESCRIPTION = "tune.json"
"""Name of the file."""
MAX_BYTES = 10_000_000
"""Size that no tune.json reaches."""


def shared_of_trials(search: Search, prepared: PreparedData) -> dict[str, Any]:
    """Return what the trials of all models share, by name.

    Args:
        search: the search, its budget matched.
        prepared: its data, whose hash covers train and validation set.
    """
    space = {f"space.{name}": str(dimension) for name, dimension in sorted(search.plan.space.items())}
    data = {"data_hash": prepared.corpus.content_hash, "batch_hash": prepared.batch_hash}
    run = search.runs[0]
    seeds = {"train.seed": run.train.seed, "seed": search.plan.seed}
    return {**shared_settings(run), **seeds, **space, **data}


def settings_by_label(search: Search) -> dict[str, dict[str, Any]]:
    """Return what the trials of one model share beside ``shared_of_trials``, by label and name."""
    return {
        run.label: {
            f"models.{run.label}.{name}": value
            for name, value in run.model_table().items()
            if name not in search.plan.space and name != "label"
        }
        for run in search.runs
    }


def open_search(
    folder: Path, search: Search, prepared: PreparedData, *, write: bool = True
) -> dict[str, str]:
    """Write tune.json, or check that the folder is of this search.

    The settings of a model may differ from those in tune.json until one of its trials has ended.

    Args:
        folder: the folder of the search, whose lock is held.
        search: the search, its budget matched.
        prepared: its data.
        write: write tune.json; without, only check.

    Returns:
        The sha256 of all that the trials of a model share, by label.

    Raises:
        ValueError: the folder holds another search, or more trials than are asked for.
    """
    path, changed = folder / DESCRIPTION, list[str]()
    # As they will be read.
    shared, models = json.loads(json.dumps([shared_of_trials(search, prepared), settings_by_label(search)]))
    settings = {name: value for part in (*models.values(), shared) for name, value in part.items()}
    trials = search.plan.trials
    if path.is_file():
        existing = read_description(path)
        changed = _changed_names(folder, existing["settings"], settings)
        if existing["trials"] > trials:
            raise ValueError(
                f"{folder} has {existing['trials']} trials for each model: "
                f"--trials can be raised, but not lowered to {trials}"
            )
    elif (folder / JOURNAL).exists():
        raise ValueError(f"{folder} has a {JOURNAL} but no {DESCRIPTION}: choose another folder with --out")
    updates = search.runs[0].train.max_updates
    content = {"trials": trials, "updates": updates, "seed": search.plan.seed, "settings": settings}
    if write:
        for label in models:
            if any(name.startswith(f"models.{label}.") for name in changed):
                _forget_unfinished(folder, label, trials)
        write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return {label: _sha256(shared | model) for label, model in models.items()}


def _changed_names(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ, all of models without ended trials; refuse any other difference."""
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    labels = Journal(folder, {}, 0, {}).labels() if changed else ()
    fixed = tuple(f"models.{label}." for label in labels)
    for name in changed:
        if not name.startswith("models.") or name.startswith(fixed):
            was, now = (abbreviate(each.get(name, "nothing")) for each in (old, new))
            raise ValueError(
                f"{folder} holds another search ({name[:80]}: {was} there, {now} here): "
                "choose another folder with --out"
            )
    return changed


def _forget_unfinished(folder: Path, label: str, trials: int) -> None:
    """Remove the saved states of trials of a model whose settings have changed.

    Raises:
        Locked: another process works on one of them.
    """
    for number in range(1, trials + 1):
        place = trial_folder(folder, label, number)
        if place.is_dir():
            with lock_folder(place):
                remove_checkpoints(place)


def _sha256(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def refuse_other_data(folder: Path, prepared: PreparedData) -> None:
    """Raise ValueError if the data are not those that the search in ``folder`` was begun with."""
    settings = read_description(folder / DESCRIPTION)["settings"]
    if (settings["data_hash"], settings["batch_hash"]) != (prepared.corpus.content_hash, prepared.batch_hash):
        raise ValueError(f"{folder} was begun with other data: restore them, or choose another folder")


def read_description(path: Path) -> dict[str, Any]:
    """Read a tune.json: the effort of a search ("trials", "updates", "seed") and its "settings".

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise ValueError(f"{path}: not the description of a search: {abbreviate(str(error))}") from None
    numbers = ("trials", "updates", "seed")
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("settings"), dict)
        or any(type(content.get(name)) is not int or not 0 <= content[name] < 2**63 for name in numbers)
    ):
        raise ValueError(f"{path}: not the description of a search: move it away")
    return content
