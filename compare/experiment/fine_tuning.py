"""Fine-tuning: ``[train] init_from`` names the run whose weights and vocabularies training starts from."""

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
    """Load the vocabularies of the run, or of the runs of the experiment, that training starts from."""
    folder = Path(init_from).expanduser()
    runs = [folder / name for name in read_registry(folder).runs]
    return load_pair(next((run for run in runs if (run / "config.toml").is_file()), folder))


def with_initial_weights(run: Run) -> Run:
    """Decide which run ``run`` starts from, and the hash of its weights.

    Args:
        run: a run with its own seed and with ``init_from``. If that is the folder of an experiment, the run
            of the same label and seed there is meant.

    Raises:
        ValueError: there is no such run, it is not finished or has no weights, its vocabulary has other
            settings, or its weights are not those of an ``init_hash`` that is given.
    """
    train = run.train
    root = Path(str(train.init_from)).expanduser().absolute()
    folder = root / run.name if (root / REGISTRY).is_file() else root
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"train.init_from: {folder} is no run: give the folder of a finished run, or of an experiment "
            "with a run of the same label and seed"
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
                f"train.init_from: {folder} has vocabulary.{name} = {text}, here {here}: its weights need "
                f"its vocabularies: --set vocabulary.{name}={text}"
            )
    return replace(
        run, train=replace(train, init_from=str(folder), init_hash=_initial_hash(run, source.weights))
    )


def _initial_hash(run: Run, weights: Path) -> str:
    """Return the sha256 of the weights that ``run`` starts from; ValueError if it is not ``init_hash``."""
    actual, expected = hash_file(weights), run.train.init_hash
    if expected not in (None, actual):
        raise ValueError(
            f"{weights} are not the weights of train.init_hash (sha256 {actual[:12]}, not "
            f"{str(expected)[:12]}): restore them"
        )
    return actual


def ensure_initial_weights_fit(runs: Sequence[RunFolder], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if the weights that a run starts from have other names or shapes than its model."""
    for run in runs:
        path = Path(str(run.run.train.init_from)) / WEIGHTS
        model = build_meta_model(run.run.model.architecture, *vocabulary_sizes)
        try:
            set_weights(model, load_weights(path), f"train.init_from of {run.run.label}: {path}")
        except ValueError as error:
            raise ValueError(
                f"{error}; --only trains the models that they fit, the folder of an experiment has "
                "weights for each"
            ) from None


def set_initial_weights(model: nn.Module, run: Run) -> None:
    """Give a model the weights that its run starts from; ValueError if they have changed or do not fit."""
    path = Path(str(run.train.init_from)) / WEIGHTS
    set_weights(model, load_weights(path), str(path))
    logger.info(f"starts from {path} (sha256 {_initial_hash(run, path)[:12]})")
