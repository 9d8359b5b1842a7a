"""Load the model of a finished run, or those of several as an ensemble."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from compare.decoding.ensemble import Ensemble
from compare.decoding.translator import Translator
from compare.models.registry import build, ensure_fits_memory
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.system.device import set_numerics
from compare.system.messages import first_line
from compare.training.serialization import (
    SAVED,
    WEIGHTS,
    ensure_fit,
    load_weights,
    set_weights,
    weight_shapes,
)
from data.files import hash_file
from data.vocabulary import FILE_NAME, load_pair

if TYPE_CHECKING:
    from compare.models.registry import Model


def load_model(run: str | Path, device: str = "cpu") -> Translator:
    """Load the model of a finished run, or one that ``save_pretrained`` wrote.

    The weights are hashed once and compared with the hash in result.json. Nothing is allocated for a config
    that they do not fit.

    Args:
        run: the folder of one run, such as runs/demo/bahdanau-seed1, or of one saved model.
        device: where the model computes, such as cpu, cuda or cuda:1.

    Returns:
        A translator with the run's length penalty: ``translate(lines)`` gives strings, ``attend(line)``
        attention weights.

    Raises:
        ValueError: the folder is no run, the weights are missing, damaged, NaN or of another model, weights,
            vocabulary or the file of a mask are not those recorded, no length penalty is chosen, the memory
            is too small, or the device cannot be used.
    """
    folder = Path(run)
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"{folder}: no config.toml: give the folder of one run, such as runs/demo/bahdanau-seed1"
        )
    trained = RunFolder.read(folder)
    vocabularies = load_pair(folder)
    files = read_result(folder).files
    trained_with = files.get(FILE_NAME, vocabularies.content_hash)
    if vocabularies.content_hash != trained_with:  # another vocabulary may have the same size
        raise ValueError(
            f"{folder / FILE_NAME} is not what this run was trained with (sha256 "
            f"{vocabularies.content_hash[:12]}, not {trained_with[:12]}): restore the run's own file"
        )
    for name, path in trained.masks().items():
        if name in files and (actual := hash_file(path)) != files[name]:
            raise ValueError(
                f"{path} is not the {name.removesuffix('.npy')} that this run was trained with (sha256 "
                f"{actual[:12]}, not {files[name][:12]}): restore the run's own file"
            )
    sizes = len(vocabularies.src), len(vocabularies.tgt)
    architecture, weights = trained.run.model.architecture, weights_file(trained)
    if not weights.parent.is_dir():
        raise ValueError(
            f"{folder} has no weights (published runs have none): "
            "train it again to translate or to see attention"
        )
    meta_model = ensure_fits_memory(architecture, *sizes, training=False, context=str(trained.config))
    ensure_fit(meta_model, weight_shapes(weights), str(weights))
    recorded = files.get(WEIGHTS)
    if recorded is not None and (actual := hash_file(weights)) != recorded:
        raise ValueError(
            f"{weights} are not the weights of this run's result (sha256 {actual[:12]}, not "
            f"{recorded[:12]}): put the run's own back"
        )
    penalty = trained.penalty()
    model = build(architecture, *sizes)
    set_weights(model, load_weights(weights), str(weights))
    try:
        set_numerics(torch.device(device), deterministic=trained.run.train.deterministic)
        model.to(device)
    except (RuntimeError, AssertionError) as error:  # of torch: no such device, or one it is not built for
        raise ValueError(f"device {device!r} cannot be used: {first_line(error)}") from None
    where, decode, label = torch.device(device), trained.run.decode, trained.run.label
    return Translator(model, vocabularies, decode, where, penalty, folder=folder.resolve(), label=label)


def weights_file(run: RunFolder) -> Path:
    """Return the file with the weights of a run, or of a model that ``save_pretrained`` wrote."""
    saved = run.folder / SAVED
    return saved if saved.exists() else run.weights


def load_ensemble(runs: Sequence[str | Path], device: str = "cpu") -> Translator:
    """Load the models of several finished runs as one that averages their probabilities.

    Args:
        runs: two or more folders of different runs with equal vocabularies.
        device: as for ``load_model``.

    Returns:
        A translator whose ``model`` is an ``Ensemble``, with the settings of decoding and the length penalty
        of the first run; ``attend`` gives no weights.

    Raises:
        ValueError: fewer than two runs, a run given twice, runs with different vocabularies, or as
            ``load_model``.
    """
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if len(folders) < 2:
        raise ValueError(f"an ensemble needs at least two runs, found {len(folders)}")
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise ValueError(f"{folder} is given twice: the members of an ensemble are different runs")
        seen.add(folder.resolve())
    first, *others = (load_model(folder, device) for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        if other.vocabularies.content_hash != first.vocabularies.content_hash:
            raise ValueError(
                f"{folder} has another vocabulary than {folders[0]}: the members of an ensemble share one"
            )
    ensemble = Ensemble([translator.model for translator in (first, *others)])
    return Translator(cast("Model", ensemble), first.vocabularies, first.decode, first.device, first.penalty)
