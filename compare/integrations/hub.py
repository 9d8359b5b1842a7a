"""Trained models as folders that others can load: settings, weights, a model card; the Hugging Face hub."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from compare.config.parse import read_toml
from compare.config.run import Run
from compare.decoding.translator import Translator
from compare.experiment.publish import MAX_BYTES, corpus_name, published_config, with_config_hash
from compare.models.presets import PRESETS
from compare.report.table import render_table
from compare.results.records import SELECTION
from compare.results.result import Result
from compare.results.run_folder import MASKS, RunFolder
from compare.results.store import read_result, save_result
from compare.results.text import escape_markdown
from compare.results.trained_model import load_model, weights_file
from compare.system.messages import first_line
from compare.training.serialization import SAVED
from data.files import check_vacant, new_folder
from data.text import read_decompressed
from data.vocabulary import load_pair

# Libraries that are installed only on demand.


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a library of an optional extra.

    Args:
        module: its name, such as "huggingface_hub".
        extra: the extra of attnbench that installs it.
        purpose: what needs it, for the message.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(
            f"{purpose} needs {module}, which is not installed: pip install 'attnbench[{extra}]'"
        ) from None


# Download and upload of saved models on the Hugging Face hub, by huggingface_hub (extra ``hub``).


HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def is_hub_id(text: str) -> bool:
    """Return whether ``text`` has the form OWNER/NAME."""
    return HUB_ID.fullmatch(text) is not None


def download_model(repo_id: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Download the files of a model into the cache of huggingface_hub; unchanged ones are there already.

    Args:
        repo_id: OWNER/NAME.
        files: names of the files; others are not downloaded.
        revision: branch, tag or commit; None: the main branch.

    Returns:
        The folder with the files.

    Raises:
        ValueError: no such model, or the hub cannot be reached.
    """
    hub = import_extra("huggingface_hub", "hub", f"{repo_id} on the hub")
    with _one_line(repo_id):
        folder = hub.snapshot_download(
            repo_id, revision=revision, allow_patterns=list(files), endpoint=os.environ.get("HF_ENDPOINT")
        )
    return Path(folder)


def upload_model(folder: Path, repo_id: str, *, private: bool, revision: str | None) -> str:
    """Upload all files of ``folder`` in one commit; return the address of the model.

    Args:
        folder: the saved model.
        repo_id: OWNER/NAME; created where it is missing.
        private: make a new repository private.
        revision: an existing branch; None: the main one.

    Raises:
        ValueError: the hub cannot be reached or refuses.
    """
    hub = import_extra("huggingface_hub", "hub", "push_to_hub")
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with _one_line(repo_id):
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            folder_path=folder, repo_id=repo_id, revision=revision, commit_message="Model saved by attnbench"
        )
    return str(address)


@contextmanager
def _one_line(repo_id: str) -> Iterator[None]:
    """Turn the errors of the hub and of the network into a ValueError of one line."""
    try:
        yield
    except Exception as error:  # the classes of the HTTP library differ between versions of huggingface_hub
        kinds = [kind.__name__ for kind in type(error).__mro__]
        if "RepositoryNotFoundError" in kinds or "RevisionNotFoundError" in kinds:
            raise ValueError(
                f"{repo_id}: no such model or revision on the hub, or it is private: check the name, or log "
                "in with `hf auth login`"
            ) from None
        offline = {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "TransportError", "ConnectionError"}
        if offline.intersection(kinds):
            raise ValueError(
                f"{repo_id}: the hub cannot be reached ({type(error).__name__}): check the network, or give "
                "the folder of a model that you have"
            ) from None
        if isinstance(error, OSError | ValueError | RuntimeError):
            raise ValueError(f"{repo_id}: the hub refused: {first_line(error)}") from None
        raise


# The model card of a saved model: README.md with the row of its result table and how to load it.


CARD = """---
language: [{languages}]
library_name: attnbench
pipeline_tag: {pipeline}
tags: [attnbench, {preset}]
metrics: [{metrics}]
---

# {label}: {title}

{about}, trained and measured by attnbench.

## Result

{table}
## Training

- Corpus: {corpus}, {src} to {tgt}; sha256 {data_hash}
- Vocabulary: {kind}, at most {size:,} entries, {joint}
- Seed {seed}, {updates} updates of at most {batch_tokens:,} target tokens, {precision}
- Code: attnbench {code_version}; settings {settings_hash}

`config.toml` has every setting, `result.json` every figure with the sha256 of the files that it comes from.
The weights are trained on the corpus above: its licence and its content decide what they may be used for.

## Use

{use}"""
TRANSLATION = """```python
from compare import {load}  # pip install attnbench

model = {load}("FOLDER")  # {where}
print(model.translate(["..."]))
```
"""
LANGUAGE_MODELLING = """    attnbench score FOLDER --ref TEXT --probabilities  # {where}
"""
NO_CODE = "\nLoading reads TOML, JSON and safetensors, and runs no code of this folder.\n"
PLUGINS = "\nThe model needs the plug-ins {plugins}, and loading it runs their code: read them first.\n"


def model_card(run: Run, result: Result) -> str:
    """Compose the README.md of a saved model.

    Args:
        run: its settings.
        result: its result, of a run that is done.
    """
    vocabulary, data, translates = run.vocabulary, run.data, run.task == "translation"
    return CARD.format(
        languages=f"{data.src}, {data.tgt}" if translates else data.tgt,
        pipeline="translation" if translates else "text-generation",
        metrics="bleu, chrf, ter" if translates else "perplexity",
        title=f"{data.src} to {data.tgt}" if translates else f"language model of {data.tgt}",
        use=_use(run),
        src=data.src,
        tgt=data.tgt,
        label=escape_markdown(run.label),
        preset=run.preset,
        about=_about(run),
        table=render_table([result]),
        corpus=escape_markdown(corpus_name(run.data.root)) or "built in",
        data_hash=result.data_hash,
        kind=vocabulary.kind,
        size=vocabulary.size,
        joint="joint" if vocabulary.joint else "one for each language",
        seed=result.seed,
        updates=result.updates,
        batch_tokens=run.train.batch_tokens,
        precision=run.train.precision,
        code_version=result.code_version,
        settings_hash=(result.settings_hash or "unknown")[:12],
    )


def _use(run: Run) -> str:
    """Describe how the model is loaded, and what that runs; ``from_pretrained`` refuses plug-ins."""
    from_hub = run.task == "translation" and not run.plugins
    load = "from_pretrained" if from_hub else "load_model"
    where = "this folder, or OWNER/NAME on the hub" if from_hub else "this folder"
    use = TRANSLATION if run.task == "translation" else LANGUAGE_MODELLING
    loading = PLUGINS.format(plugins=", ".join(run.plugins)) if run.plugins else NO_CODE
    return use.format(load=load, where=where) + loading


def _about(run: Run) -> str:
    """Describe the model: its preset with the source of it."""
    preset = PRESETS.get(run.preset)
    described = f" ({preset.about}; {preset.source})" if preset else ""
    return f"A model made from the preset `{run.preset}`{described}"


# Trained models as folders that others can load: settings, vocabulary, weights and a model card.
#
# A saved model has the files of a finished run that ``load_model`` needs, and README.md. Loading it reads
# TOML, JSON and safetensors, and never runs code.


CARD_NAME = "README.md"
"""The model card."""
FILES = (
    *("config.toml", "vocabulary.json", SAVED, SELECTION, "result.json", CARD_NAME),
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
        (target / CARD_NAME).write_text(model_card(run.run, result), encoding="utf-8")
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
