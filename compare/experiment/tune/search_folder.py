"""The folder of a search: tune.json, which describes it, and the refusal of another search's folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

from compare.config.shared_settings import shared_settings
from compare.experiment.prepare import PreparedData
from compare.experiment.tune.journal import JOURNAL
from compare.experiment.tune.plan import Search
from compare.system.hints import abbreviate
from data.text.files import parse_json, read_bytes, write_atomically

DESCRIPTION = "tune.json"
"""Name of the file."""
MAX_BYTES = 10_000_000
"""Size that no tune.json reaches."""


def search_settings(search: Search, prepared: PreparedData) -> dict[str, Any]:
    """Return everything that the trials of a search share, by name.

    Args:
        search: the search, its budget matched.
        prepared: its data, whose hash covers train and validation set.
    """
    models = {
        f"models.{run.label}.{name}": value
        for run in search.runs
        for name, value in run.model_table().items()
        if name not in search.plan.space and name != "label"
    }
    space = {f"space.{name}": str(dimension) for name, dimension in sorted(search.plan.space.items())}
    data = {"data_hash": prepared.corpus.content_hash, "batch_hash": prepared.batch_hash}
    run = search.runs[0]
    seeds = {"train.seed": run.train.seed, "seed": search.plan.seed}
    return {**shared_settings(run), **seeds, **models, **space, **data}


def open_search(folder: Path, search: Search, prepared: PreparedData, *, write: bool = True) -> str:
    """Write tune.json, or check that the folder is of this search.

    Args:
        folder: the folder of the search, whose lock is held.
        search: the search, its budget matched.
        prepared: its data.
        write: write tune.json; without, only check.

    Returns:
        The sha256 of all that its trials share.

    Raises:
        ValueError: the folder holds another search, or more trials than are asked for.
    """
    path = folder / DESCRIPTION
    settings = json.loads(json.dumps(search_settings(search, prepared)))  # as it will be read
    trials = search.plan.trials
    if path.is_file():
        existing = read_description(path)
        old = existing["settings"]
        for name in dict.fromkeys([*old, *settings]):
            if old.get(name) != settings.get(name):
                was, now = (abbreviate(each.get(name, "nothing")) for each in (old, settings))
                raise ValueError(
                    f"{folder} holds another search ({name[:80]}: {was} there, {now} here): "
                    "choose another folder with --out"
                )
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
        write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
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
