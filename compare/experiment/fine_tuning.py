"""Fine-tuning: start training with the weights and vocabularies of the run in ``[train] init_from``."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from compare.config.resolve import Run
from compare.models.registry import build_meta_model
from compare.results.run_folder import RunFolder
from compare.results.store import REGISTRY, read_registry, read_result
from compare.training.checkpoints import WEIGHTS, load_weights, set_weights
from data.files import hash_file
from data.vocabulary import VocabularyPair, load_pair

logger = logging.getLogger(__name__)


def initial_vocabularies(init_from: str) -> VocabularyPair:
    """Load the vocabularies of the run or experiment in the folder ``init_from``."""
    folder = Path(init_from).expanduser()
    runs = [folder / name for name in read_registry(folder).runs]
    return load_pair(next((run for run in runs if (run / "config.toml").is_file()), folder))


def with_initial_weights(run: Run) -> Run:
    """Resolve ``init_from`` to the folder of one run, and set ``init_hash``.

    In the folder of an experiment, that is the run of the same label and seed.

    Raises:
        ValueError: there is no such run, it has no weights or is unfinished, its vocabulary has other
            settings, or its weights do not have the hash ``init_hash``.
    """
    train = run.train
    root = Path(str(train.init_from)).expanduser().absolute()
    folder = root / run.name if (root / REGISTRY).is_file() else root
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
