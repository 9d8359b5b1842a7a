"""Load the model of a finished run."""

from pathlib import Path

import torch

from compare.decoding.translator import Translator
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.system.hints import first_line
from compare.training.checkpoint import load_weights, set_weights
from data.vocabulary import FILE_NAME, load_pair


def load_model(run: str | Path, device: str = "cpu") -> Translator:
    """Load the model of a finished run.

    Args:
        run: the folder of one run, such as runs/demo/bahdanau-seed1.
        device: where the model computes: cpu or cuda.

    Returns:
        A translator: ``translate(lines)`` gives strings, ``attend(line)`` attention weights.

    Raises:
        ValueError: the folder is no run, the weights are missing, damaged or of another model, the vocabulary
            belongs to another run, or the device cannot be used.
    """
    folder = Path(run)
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"{folder}: no config.toml: give the folder of one run, such as runs/demo/bahdanau-seed1"
        )
    trained = RunFolder.read(folder)
    vocabularies = load_pair(folder)
    trained_with = read_result(folder).files.get(FILE_NAME, vocabularies.content_hash)
    if vocabularies.content_hash != trained_with:  # another vocabulary may have the same size
        raise ValueError(
            f"{folder / FILE_NAME} is not what this run was trained with (sha256 "
            f"{vocabularies.content_hash[:12]}, not {trained_with[:12]}): restore the run's own file"
        )
    model = build(trained.run.model.architecture, len(vocabularies.src), len(vocabularies.tgt))
    set_weights(model, load_weights(trained.weights), str(trained.weights))
    try:
        model.to(device)
    except (RuntimeError, AssertionError) as error:  # of torch: no such device, or one it is not built for
        raise ValueError(f"device {device!r} cannot be used: {first_line(error)}") from None
    return Translator(model, vocabularies, trained.run.decode, torch.device(device))
