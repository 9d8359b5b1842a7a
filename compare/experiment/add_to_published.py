"""What a published folder keeps when the runs of another machine are added to it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare.config.shared_settings import find_difference, find_model_difference
from compare.experiment.experiment_folder import EXTENDED
from compare.results.ensemble_file import FOLDER as ENSEMBLES
from compare.results.ensemble_file import NAME as ENSEMBLE
from compare.results.ensemble_file import read_ensemble
from compare.results.run_folder import RunFolder
from compare.results.store import extended_from, read_registry, read_result, read_results

REGISTRY = "experiment.json"
SAME = ("data_hash", "vocabulary_hash", "settings_hash")
"""Entries of experiment.json that must be equal."""


def read_kept(folder: Path, out: Path, added: Sequence[RunFolder]) -> list[RunFolder]:
    """Read the runs of a published folder that are not among those added to it.

    Args:
        folder: the folder of the experiment that is added.
        out: the published folder; it may be absent or empty.
        added: the runs of ``folder``.

    Raises:
        ValueError: the two are not of one experiment, or a file of ``out`` is damaged.
    """
    if not (out / REGISTRY).is_file():
        return []
    old, new = read_registry(out / REGISTRY), _registry(folder)
    for key in SAME:
        if key in new and old.get(key) != new[key]:
            raise ValueError(
                f"{out} holds another experiment ({key} {str(old.get(key))[:12]}, here {new[key][:12]}): "
                "publish to another folder"
            )
    names = {run.name for run in added}
    kept = [
        RunFolder.read(out / result.run)
        for result in read_results(out)
        if result.run not in names and (out / result.run).is_dir()
    ]
    for run in kept:
        of_label = (each.run for each in added if each.run.label == run.run.label)
        difference = find_difference(added[0].run, run.run)
        for other in of_label:
            difference = difference or find_model_difference(other, run.run)
        if difference:
            raise ValueError(
                f"{run.folder} has other settings ({difference}): publish to another folder, "
                "or delete this one first"
            )
    return kept


def merge_registries(folder: Path, kept: Sequence[RunFolder], added: Sequence[RunFolder]) -> dict[str, Any]:
    """Merge experiment.json of two folders, where there are any; what it says by run or label is of both.

    Args:
        folder: the experiment that is added.
        kept: runs of the published folder that stay.
        added: those of ``folder``.
    """
    old, new = _registry(kept[0].folder.parent) if kept else {}, _registry(folder)
    asked: dict[str, set[int]] = {}
    for registry in (old, new):
        for label, seeds in registry.get("asked_seeds", {}).items():
            asked.setdefault(label, set()).update(seeds)
    merged = {**old, **new}
    for key in old.keys() & new.keys():
        if isinstance(old[key], dict) and isinstance(new[key], dict):
            merged[key] = {**old[key], **new[key]}
    if EXTENDED in merged:
        extended = {run.name: extended_from(run.folder) for run in (*kept, *added)}
        merged[EXTENDED] = {name: updates for name, updates in extended.items() if updates is not None}
    if asked:
        merged["asked_seeds"] = {label: sorted(seeds) for label, seeds in asked.items()}
    return merged


def find_kept_ensembles(out: Path, target: Path) -> list[Path]:
    """List the folders of those ensembles in ``out`` whose members have the same weights in ``target``."""
    return [
        path.parent
        for path in sorted((out / ENSEMBLES).glob(f"*/{ENSEMBLE}"))
        if all(
            _weights_hash(out / name) == _weights_hash(target / name) for name in read_ensemble(path).members
        )
    ]


def _weights_hash(folder: Path) -> str:
    """Return the recorded hash of a run's weights; empty if there is no such run."""
    if not (folder / "config.toml").is_file():
        return ""
    weights = RunFolder.read(folder).weights.relative_to(folder).as_posix()
    return read_result(folder).files.get(weights, "")


def _registry(folder: Path) -> dict[str, Any]:
    path = folder / REGISTRY
    return read_registry(path) if path.is_file() else {}
