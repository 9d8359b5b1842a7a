"""The folder of a search: tune.json, which describes it, and the refusal of another search's folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.config.run import shared_settings
from compare.experiment.prepare import PreparedData
from compare.experiment.tune.description import DESCRIPTION, MODELS, key_of, label_of, read_description
from compare.experiment.tune.journal import JOURNAL, Journal, trial_folder
from compare.experiment.tune.plan import Search, TuningPlan
from compare.experiment.tune.trial import remove_checkpoints
from compare.system.messages import abbreviate
from compare.system.signals import lock_folder
from data.files import write_atomically


def search_settings(search: Search, prepared: PreparedData) -> dict[str, Any]:
    """Return everything that trials share, by name; ``label_of`` tells what only those of one model do.

    Args:
        search: the search, its budget matched.
        prepared: its data, whose hash covers train and validation set.
    """
    models = {
        f"{MODELS}{run.label}.{name}": value
        for run in search.runs
        for name, value in run.model_table().items()
        if name not in search.plan.space and name != "label"
    }
    space = {f"space.{name}": str(dimension) for name, dimension in sorted(search.plan.space.items())}
    data = {"data_hash": prepared.corpus.content_hash, "batch_hash": prepared.batch_hash}
    run = search.runs[0]
    seeds = {"train.seed": run.train.seed, "seed": search.plan.seed}
    return {**models, **shared_settings(run), **seeds, **space, **data}


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
    settings = json.loads(json.dumps(search_settings(search, prepared)))  # as they will be read
    labels = [run.label for run in search.runs]
    plan = search.plan
    if path.is_file():
        existing = read_description(path)
        changed = _changed_names(folder, existing["settings"], settings)
        _refuse_less_effort(folder, existing, plan)
    elif (folder / JOURNAL).exists():
        raise ValueError(f"{folder} has a {JOURNAL} but no {DESCRIPTION}: choose another folder with --out")
    content: dict[str, Any] = {
        "trials": plan.trials,
        "updates": search.runs[0].train.max_updates,
        "seed": plan.seed,
    }
    if len(search.seeds) > 1:
        content |= {"seeds": list(search.seeds), "finalists": plan.finalists}
    content["settings"] = settings
    if write:
        for label in labels:
            if any(label_of(name) == label for name in changed):
                _forget_unfinished(folder, label, search)
        write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return {label: key_of(settings, label) for label in labels}


def _changed_names(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ, all of models without ended trials; refuse any other difference."""
    changed = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    fixed: set[str | None] = {None, *Journal(folder, {}, 0, {}).labels()} if changed else set()
    for name in changed:
        if label_of(name) in fixed:
            was, now = (abbreviate(each.get(name, "nothing")) for each in (old, new))
            raise ValueError(
                f"{folder} holds another search ({name[:80]}: {was} there, {now} here): "
                "choose another folder with --out"
            )
    return changed


def _refuse_less_effort(folder: Path, existing: Mapping[str, Any], plan: TuningPlan) -> None:
    """Refuse a plan with fewer trials, seeds or finalists than the search has: they can only be raised."""
    if existing["trials"] > plan.trials:
        raise ValueError(
            f"{folder} has {existing['trials']} trials for each model: "
            f"--trials can be raised, but not lowered to {plan.trials}"
        )
    seeds, finalists = existing["seeds"], existing["finalists"]
    if list(plan.seeds[: len(seeds)]) != seeds:
        raise ValueError(
            f"{folder} has trials with the seeds {_join(seeds)}: --seeds must begin with them, found "
            f"{_join(plan.seeds) or 'none'}"
        )
    if seeds and plan.finalists and not 0 < finalists <= plan.finalists:
        raise ValueError(
            f"{folder} repeats {finalists or 'all'} trials of each model: "
            f"--finalists can be raised, but not lowered to {plan.finalists}"
        )


def _join(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))


def _forget_unfinished(folder: Path, label: str, search: Search) -> None:
    """Remove the saved states of trials of a model whose settings have changed.

    Raises:
        Locked: another process works on one of them.
    """
    for number in range(1, search.plan.trials + 1):
        for seed in (None, *search.seeds[1:]):
            path = trial_folder(folder, label, number, seed)
            if path.is_dir():
                with lock_folder(path):
                    remove_checkpoints(path)


def refuse_other_data(folder: Path, prepared: PreparedData) -> None:
    """Raise ValueError if the data are not those that the search in ``folder`` was begun with."""
    settings = read_description(folder / DESCRIPTION)["settings"]
    if (settings["data_hash"], settings["batch_hash"]) != (prepared.corpus.content_hash, prepared.batch_hash):
        raise ValueError(f"{folder} was begun with other data: restore them, or choose another folder")
