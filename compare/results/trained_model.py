"""Load the model of a finished run."""

from pathlib import Path

import torch

from compare.decoding.translator import Translator
from compare.models.meta_model import ensure_fits_memory
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.system.hints import first_line
from compare.system.numerics import set_numerics
from compare.training.serialization import ensure_fit, load_weights, set_weights, weight_shapes
from data.text.files import hash_file
from data.vocabulary import FILE_NAME, load_pair


def load_model(run: str | Path, device: str = "cpu") -> Translator:
    """Load the model of a finished run.

    The weights are hashed once and compared with the hash in result.json. Nothing is allocated for a config
    that they do not fit.

    Args:
        run: the folder of one run, such as runs/demo/bahdanau-seed1.
        device: where the model computes, such as cpu, cuda or cuda:1.

    Returns:
        A translator with the run's length penalty: ``translate(lines)`` gives strings, ``attend(line)``
        attention weights.

    Raises:
        ValueError: the folder is no run, the weights are missing, damaged, NaN or of another model, weights
            or vocabulary are not those recorded, no length penalty is chosen, the memory is too small, or
            the device cannot be used.
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
    sizes = len(vocabularies.src), len(vocabularies.tgt)
    architecture, weights = trained.run.model.architecture, trained.weights
    if not weights.parent.is_dir():
        raise ValueError(
            f"{folder} has no weights (published runs have none): "
            "train it again to translate or to see attention"
        )
    meta_model = ensure_fits_memory(architecture, *sizes, training=False, context=str(trained.config))
    ensure_fit(meta_model, weight_shapes(weights), str(weights))
    recorded = files.get(weights.relative_to(folder).as_posix())
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
    return Translator(model, vocabularies, trained.run.decode, torch.device(device), penalty)
