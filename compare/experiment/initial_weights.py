"""Training that starts from the weights of another run (fine-tuning), with its vocabularies."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from compare.config.run import Run
from compare.config.sections import VocabularyConfig
from compare.config.training_sections import TrainConfig
from compare.models.meta_model import build_meta_model
from compare.results.run_folder import RunFolder
from compare.results.store import read_registry, read_result
from compare.training.file_names import WEIGHTS
from compare.training.serialization import ensure_fit, load_weights, set_weights, weight_shapes
from data.text.files import hash_file
from data.vocabulary import VocabularyPair, load_pair

logger = logging.getLogger(__name__)

KEY = "train.init_from"


def with_initial_weights(run: Run) -> Run:
    """Decide which run ``run`` starts from, and the hash of its weights; without ``init_from``, nothing.

    Args:
        run: a run with its own seed. If ``init_from`` is the folder of an experiment, the run of the same
            label and seed there is meant.

    Raises:
        ValueError: there is no such run, it is not finished or has no weights, its vocabulary has other
            settings, or its weights are not those of an ``init_hash`` that is given.
    """
    train = run.train
    if train.init_from is None:
        return run
    root = Path(train.init_from).expanduser().absolute()
    folder = root / run.name if (root / "experiment.json").is_file() else root
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"{KEY}: {folder} is no run: give the folder of a finished run, or of an experiment with a run "
            "of the same label and seed"
        )
    source = RunFolder.read(folder)
    if read_result(folder).status != "done" or not source.weights.is_file():
        raise ValueError(f"{KEY}: {folder} is not finished, or has no weights (published runs have none)")
    _ensure_same_vocabulary(run.vocabulary, source.run.vocabulary, folder)
    found = hash_file(source.weights)
    if train.init_hash not in (None, found):
        raise ValueError(
            f"{source.weights} are not the weights of train.init_hash (sha256 {found[:12]}, not "
            f"{str(train.init_hash)[:12]}): restore them"
        )
    return replace(run, train=replace(train, init_from=str(folder), init_hash=found))


def initial_vocabularies(train: TrainConfig) -> VocabularyPair | None:
    """Load the vocabularies of the run that training starts from; None if it starts from random weights.

    Args:
        train: settings of an experiment or of a run; the runs of an experiment share their vocabularies.

    Raises:
        ValueError: there is no such run.
    """
    if train.init_from is None:
        return None
    folder = Path(train.init_from).expanduser()
    if (folder / "experiment.json").is_file():
        runs = [folder / name for name in read_registry(folder / "experiment.json").get("runs", [])]
        folder = next((run for run in runs if (run / "config.toml").is_file()), folder)
    if not (folder / "config.toml").is_file():
        raise ValueError(f"{KEY}: {folder} is no run: give the folder of a finished run, or of an experiment")
    return load_pair(folder)


def ensure_initial_weights_fit(runs: Sequence[RunFolder], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if the weights that a run starts from have other names or shapes than its model."""
    for run in runs:
        if run.run.train.init_from is not None:
            path = Path(run.run.train.init_from) / WEIGHTS
            model = build_meta_model(run.run.model.architecture, *vocabulary_sizes)
            ensure_fit(model, weight_shapes(path), f"{KEY} of {run.run.label}: {path}")


def load_initial_weights(model: nn.Module, train: TrainConfig) -> None:
    """Give a model the weights that its training starts from, if there are any.

    Raises:
        ValueError: the weights are damaged, of another model, or not those of ``init_hash``.
    """
    if train.init_from is None:
        return
    path = Path(train.init_from) / WEIGHTS
    weights = load_weights(path)
    if (found := hash_file(path)) != train.init_hash:
        raise ValueError(
            f"{path} are not the weights that this run starts from (sha256 {found[:12]}, not "
            f"{str(train.init_hash)[:12]}): restore them"
        )
    set_weights(model, weights, str(path))
    logger.info(f"starts from {path} (sha256 {found[:12]})")


def _ensure_same_vocabulary(here: VocabularyConfig, there: VocabularyConfig, source: Path) -> None:
    """Raise ValueError if the ``[vocabulary]`` section is not that of the run whose vocabularies are used."""
    for name, value in vars(there).items():
        if getattr(here, name) != value:
            text = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(
                f"{KEY}: {source} has vocabulary.{name} = {text}, here {getattr(here, name)}: its weights "
                f"need its vocabularies: --set vocabulary.{name}={text}"
            )
