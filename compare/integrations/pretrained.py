"""Trained models as folders that others can load: settings, vocabulary, weights and a model card.

A saved model has the files of a finished run that ``load_model`` needs, and README.md. Loading it reads TOML,
JSON and safetensors, and never runs code.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from compare.config.toml_text import read_toml
from compare.decoding.translator import Translator
from compare.experiment.publish import with_config_hash
from compare.experiment.published_config import MAX_BYTES, published_config
from compare.integrations.hub import download_model, is_hub_id, upload_model
from compare.integrations.model_card import model_card
from compare.results.run_folder import MASKS, RunFolder
from compare.results.selection import NAME as SELECTION
from compare.results.store import read_result, save_result
from compare.results.trained_model import load_model, weights_file
from compare.training.file_names import SAVED
from data.text.compression import read_decompressed
from data.text.new_folder import check_vacant, new_folder
from data.vocabulary import load_pair

CARD = "README.md"
"""The model card."""
FILES = (
    *("config.toml", "vocabulary.json", SAVED, SELECTION, "result.json", CARD),
    *(f"{mask}.npy" for mask in MASKS),
)
"""All files of a saved model."""


def save_pretrained(model: Translator | str | Path, folder: str | Path, *, replace: bool = False) -> Path:
    """Save the model of a finished run as a folder that ``from_pretrained`` loads.

    The folder appears complete or not at all. It holds the run's settings (without the path of its corpus),
    vocabulary, weights (safetensors), result, and a model card with the row of the result table. ``attnbench
    translate`` takes it as it takes a run. The corpus and the trainer state stay behind.

    Args:
        model: the folder of a finished run, or a translator that was loaded from one, whose files are copied.
        folder: the new folder.
        replace: delete the saved model that ``folder`` holds.

    Returns:
        ``folder``.

    Raises:
        OSError: a file cannot be read or written, or ``folder`` is not empty.
        ValueError: the run has not ended, its model cannot be loaded, the translator is not of one run, or
            ``folder`` holds something other than a saved model.
    """
    source, out = run_folder(model), Path(folder)
    check_vacant(out, replace=replace)
    if replace and out.is_dir() and any(path.name not in FILES for path in out.iterdir()):
        raise ValueError(f"{out} holds more than a saved model: only a saved model can be replaced")
    load_model(source)  # refuses files that are missing, damaged or of another run
    result = read_result(source)
    if result.status != "done":
        raise ValueError(f"{source} has not ended ({result.status}): run the experiment to its end first")
    run = RunFolder.read(source)
    config = published_config(run)
    result = with_config_hash(result, config)
    with new_folder(out, replace=replace) as target:
        (target / "config.toml").write_bytes(config)
        load_pair(source).save(target)
        shutil.copyfile(weights_file(run), target / SAVED)
        if run.selection.exists():
            (target / run.selection.name).write_bytes(read_decompressed(run.selection, max_bytes=MAX_BYTES))
        for name, path in run.masks().items():
            shutil.copyfile(path, target / name)
        save_result(target, result)
        (target / CARD).write_text(model_card(run.run, result), encoding="utf-8")
    return out


def from_pretrained(model: str | Path, device: str = "cpu", *, revision: str | None = None) -> Translator:
    """Load a model that ``save_pretrained`` or ``push_to_hub`` wrote; nothing in it is executed.

    Args:
        model: a folder, or where there is no such folder the id of a model on the Hugging Face hub, such as
            "name/bahdanau-de-en", which is downloaded once (extra ``hub``).
        device: where the model computes, such as cpu, cuda or cuda:1.
        revision: branch, tag or commit of a model on the hub.

    Returns:
        A translator that translates as the saved one did.

    Raises:
        ValueError: no such folder or model, no network, a damaged file, or a model that needs plug-ins, whose
            code loading would run.
    """
    folder = Path(model)
    if not folder.is_dir():
        if not is_hub_id(str(model)):
            raise ValueError(f"{model}: no such folder, and not the id of a model on the hub (OWNER/NAME)")
        folder = download_model(str(model), FILES, revision)
    elif revision is not None:
        raise ValueError(f"{model} is a folder: revision is for models on the hub")
    config = folder / "config.toml"
    if config.is_file() and (plugins := read_toml(config).get("plugins")):
        raise ValueError(
            f"{folder} needs the plug-ins {plugins}, whose code loading would run: read them, and if you "
            "trust them call load_model with this folder"
        )
    return load_model(folder, device)


def push_to_hub(
    model: Translator | str | Path, repo_id: str, *, private: bool = False, revision: str | None = None
) -> str:
    """Upload a model to the Hugging Face hub, with the files of ``save_pretrained`` (extra ``hub``).

    The token is that of ``hf auth login`` or of the environment variable ``HF_TOKEN``.

    Args:
        model: as for ``save_pretrained``, or a folder that it wrote.
        repo_id: OWNER/NAME; created where it is missing.
        private: make a new repository private.
        revision: an existing branch to upload to; by default the main one.

    Returns:
        The address of the model.

    Raises:
        ValueError: as ``save_pretrained``, or the hub cannot be reached or refuses.
    """
    if not is_hub_id(repo_id):
        raise ValueError(f"{repo_id}: not the id of a model on the hub, which is OWNER/NAME")
    with TemporaryDirectory() as temporary:
        saved = save_pretrained(model, Path(temporary) / "model")
        return upload_model(saved, repo_id, private=private, revision=revision)


def run_folder(model: Translator | str | Path) -> Path:
    """Return the folder of a run, or that a translator was loaded from.

    Raises:
        ValueError: the translator was not loaded from one folder.
    """
    if not isinstance(model, Translator):
        return Path(model)
    if model.folder is None:
        raise ValueError("this translator is not the model of one run (an ensemble?): give the folder of one")
    return model.folder
