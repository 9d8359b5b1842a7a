"""The start of a run: weights of another run (``[train] init_from``), or the trunk of smaller budgets."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from torch import nn

from compare.config.resolve import Run
from compare.config.sections import run_name
from compare.models.registry import build_meta_model
from compare.results.run_folder import RunFolder, find_run
from compare.results.store import REGISTRY, read_registry, read_result
from compare.training.checkpoints import (
    CHECKPOINTS,
    STATE,
    TRUNK,
    WEIGHTS,
    has_begun,
    load_weights,
    set_weights,
)
from data.files import hash_file, write_atomically
from data.vocabulary import VocabularyPair, load_pair

logger = logging.getLogger(__name__)

# Fine-tuning: the weights and vocabularies of another run.


def initial_vocabularies(init_from: str) -> VocabularyPair:
    """Load the vocabularies of the run or experiment in the folder ``init_from``."""
    folder = Path(init_from).expanduser()
    runs = [folder / name for name in read_registry(folder).runs]
    return load_pair(next((run for run in runs if (run / "config.toml").is_file()), folder))


def with_initial_weights(run: Run) -> Run:
    """Resolve ``init_from`` to the folder of one run, and set ``init_hash``.

    In the folder of an experiment, that is the run of the same label and seed, with its largest budget.

    Raises:
        ValueError: there is no such run, it has no weights or is unfinished, its vocabulary has other
            settings, or its weights do not have the hash ``init_hash``.
    """
    train = run.train
    root = Path(str(train.init_from)).expanduser().absolute()
    folder = root / run_name(run.label, train.seed) if (root / REGISTRY).is_file() else root
    with suppress(OSError, ValueError):  # a better message follows
        folder = find_run(folder)
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"train.init_from: {folder} is not a run: give the folder of a finished run, or of an experiment "
            "that has a run of the same label and seed"
        )
    source = RunFolder.read(folder)
    if read_result(folder).status != "done" or not source.weights.is_file():
        raise ValueError(
            f"train.init_from: {folder} is not finished, or has no weights (published runs may have none)"
        )
    for name, value in vars(source.run.vocabulary).items():
        if (here := getattr(run.vocabulary, name)) != value:
            text = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(
                f"train.init_from: {folder} has vocabulary.{name} = {text}, here {here}; its weights need "
                f"its vocabularies: --set vocabulary.{name}={text}"
            )
    return replace(
        run, train=replace(train, init_from=str(folder), init_hash=_initial_hash(run, source.weights))
    )


def _initial_hash(run: Run, weights: Path) -> str:
    """Return the sha256 of the initial weights; ValueError if ``init_hash`` is another one."""
    actual, expected = hash_file(weights), run.train.init_hash
    if expected not in (None, actual):
        raise ValueError(
            f"{weights} are not the weights of train.init_hash (sha256 {actual[:12]}, not "
            f"{str(expected)[:12]}): restore the right ones"
        )
    return actual


def ensure_initial_weights_fit(runs: Sequence[RunFolder], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if initial weights have other names or shapes than the model."""
    for run in runs:
        path = Path(str(run.run.train.init_from)) / WEIGHTS
        model = build_meta_model(run.run.model.architecture, *vocabulary_sizes)
        try:
            set_weights(model, load_weights(path), f"train.init_from of {run.run.label}: {path}")
        except ValueError as error:
            raise ValueError(
                f"{error}; choose models that the weights fit with --only, or give an experiment folder with "
                "weights for each model"
            ) from None


def set_initial_weights(model: nn.Module, run: Run) -> None:
    """Load the initial weights; raise ValueError if they have changed or do not fit."""
    path = Path(str(run.train.init_from)) / WEIGHTS
    set_weights(model, load_weights(path), str(path))
    logger.info(f"starts from {path} (sha256 {_initial_hash(run, path)[:12]})")


# Several budgets: the trunk that the smaller ones have trained.


def smaller_budgets(run: RunFolder) -> list[RunFolder]:
    """Open the begun folders of the same model and seed with a smaller budget, largest first."""
    updates = run.run.train.max_updates
    return [other for other in _other_budgets(run) if other.run.train.max_updates < updates]


def _other_budgets(run: RunFolder) -> list[RunFolder]:
    budget = run.run.train.budget
    if budget is None:
        return []
    stem = run.name.removesuffix(str(budget))
    folder, data_root = run.folder.parent, run.run.data.root
    names = (path.parent.name.removeprefix(stem) for path in folder.glob(f"{stem}*/config.toml"))
    numbers = sorted((int(name) for name in names if name.isdigit() and int(name) != budget), reverse=True)
    return [RunFolder.read(folder / f"{stem}{number}", data_root=data_root) for number in numbers]


def trunk_updates(runs: Sequence[RunFolder]) -> dict[str, int]:
    """Return the updates that each of planned runs takes over from its next smaller budget, by name."""
    updates = dict.fromkeys((run.name for run in runs), 0)
    for smaller, run in pairwise(runs):  # budgets of one model and seed follow each other
        if (smaller.run.label, smaller.run.train.seed) == (run.run.label, run.run.train.seed):
            updates[run.name] = smaller.run.train.branch_update
    return updates


def start_from_trunk(run: RunFolder) -> None:
    """Give a run without state the last state of the trunk, and the log that belongs to it.

    The state is written last: a process killed in between leaves nothing that looks begun. The log may have
    lines beyond the state; the trainer drops them.
    """
    checkpoints = run.folder / CHECKPOINTS
    if has_begun(checkpoints):
        return
    others = [other for other in _other_budgets(run) if _is_same_but_for_budget(other.run, run.run)]
    missing = []
    for other in others:
        trunk = other.folder / CHECKPOINTS / TRUNK
        if other.run.train.max_updates > run.run.train.max_updates:
            continue
        if not (trunk / STATE).is_file():
            missing.append(str(trunk))
            continue
        checkpoints.mkdir(parents=True, exist_ok=True)
        snapshots = sorted(path.name for path in trunk.glob("update-*.safetensors"))
        write_atomically(run.metrics, other.metrics.read_bytes())
        for name in (*snapshots, STATE):
            write_atomically(checkpoints / name, (trunk / name).read_bytes())
        origin = f"starts from update {other.run.train.branch_update:,} of {other.name}"
        break
    else:
        origin = "starts from update 0, since no smaller budget has saved a state"
    if missing:
        logger.warning(f"{run.name}: {', '.join(missing)} is not there: {origin}")
    elif others:
        logger.info(f"{run.name}: {origin}")


def _is_same_but_for_budget(other: Run, run: Run) -> bool:
    """Return whether two runs differ only in budget and measurement of speed."""
    budget = run.train.budget or run.train.max_updates
    train = replace(other.train.for_budget(budget), init_from=run.train.init_from)
    return replace(other, train=train, bench=run.bench, data=run.data) == run
