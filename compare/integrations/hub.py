"""Save trained models as folders with a model card, and exchange them with the Hugging Face hub.

A saved model has the files of a run that ``load_model`` needs, and README.md. Loading it reads TOML, JSON and
safetensors, and never runs code.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from compare.config.parse import read_toml
from compare.config.resolve import Run
from compare.decoding.translator import Translator
from compare.models.presets import PRESETS
from compare.report.publish import corpus_name, published_run, with_hash
from compare.report.result_table import render_table
from compare.report.table_formats import escape_markdown, fill_page
from compare.results.records import SELECTION
from compare.results.run_folder import MASKS, RunFolder, load_model
from compare.results.store import Result, read_result, save_result
from compare.system.messages import explain, first_line
from compare.system.processes import Terminated
from compare.training.checkpoints import SAVED
from data.files import check_vacant, new_folder
from data.text import read_decompressed
from data.vocabulary import load_pair

CARD_NAME = "README.md"
FILES = (
    *("config.toml", "vocabulary.json", SAVED, SELECTION, "result.json", CARD_NAME),
    *(f"{mask}.npy" for mask in MASKS),
)
"""All files of a saved model."""


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a library that an extra of attnbench installs; ValueError says that ``purpose`` needs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        problem = "is not installed: pip install"
    except ImportError as error:
        signal = error.__cause__ or error.__context__
        if isinstance(signal, Terminated | KeyboardInterrupt):  # C++ libraries hide these signals
            raise signal from None
        problem = f"cannot be imported ({first_line(error)}): pip install --force-reinstall"
    raise ValueError(f"{purpose} needs {module}, which {problem} 'attnbench[{extra}]'")


@contextmanager
def _hub(repo_id: str) -> Iterator[ModuleType]:
    """Yield huggingface_hub, and turn its errors and those of the network into a ValueError of one line."""
    hub = import_extra("huggingface_hub", "hub", f"{repo_id} on the hub")
    try:
        yield hub
    except Exception as error:  # the HTTP library and its errors depend on the version of huggingface_hub
        raise ValueError(
            f"{repo_id}: {type(error).__name__}: {explain(error)} Check the name and the network; uploads "
            "and private models need `hf auth login`"
        ) from None


def save_pretrained(model: Translator | str | Path, folder: str | Path) -> Path:
    """Save the model of a finished run as a folder that ``from_pretrained`` loads.

    The folder has the settings of the run without the path of its corpus, vocabularies, weights, result and a
    model card. ``attnbench translate`` accepts it like a run.

    Args:
        model: the folder of a finished run, or a translator that was loaded from one.
        folder: the new folder, which appears complete or not at all.

    Returns:
        ``folder``.

    Raises:
        OSError: a file cannot be read or written, or ``folder`` is not empty.
        ValueError: the run has not ended, its model cannot be loaded, or the translator is an ensemble.
    """
    source, out = run_folder(model), Path(folder)
    check_vacant(out)
    load_model(source)  # raises an error if files are missing, damaged or from another run
    result = read_result(source)
    if result.status != "done":
        raise ValueError(f"{source} has not ended ({result.status}): run the experiment to its end first")
    run = RunFolder.read(source)
    config = published_run(run).to_toml().encode()
    result = with_hash(result, "config.toml", config)
    with new_folder(out) as target:
        (target / "config.toml").write_bytes(config)
        load_pair(source).save(target)
        shutil.copyfile(run.weights, target / SAVED)
        if run.selection.exists():
            (target / run.selection.name).write_bytes(read_decompressed(run.selection))
        for name, path in run.masks().items():
            shutil.copyfile(path, target / name)
        save_result(target, result)
        (target / CARD_NAME).write_text(model_card(run.run, result), encoding="utf-8")
    return out


def model_card(run: Run, result: Result) -> str:
    """Return the README.md of a saved model."""
    preset = PRESETS.get(run.preset)
    return fill_page(
        Path(__file__).with_name("card.md"),
        run=run,
        result=result,
        translates=run.translates,
        languages=[run.data.src, run.data.tgt] if run.translates else [run.data.tgt],
        label=escape_markdown(run.label),
        described=f" ({preset.about}; {preset.source})" if preset else "",
        table=render_table([result]),
        corpus=escape_markdown(corpus_name(run.data.root)) or "built in",
    )


def from_pretrained(model: str | Path, device: str = "cpu", *, revision: str | None = None) -> Translator:
    """Load a model that ``save_pretrained`` or ``push_to_hub`` wrote; no code in it is executed.

    Args:
        model: a folder, or the id of a model on the Hugging Face hub, such as "name/bahdanau-de-en", which
            is downloaded once (extra ``hub``).
        device: device of the model, such as cpu, cuda or cuda:1.
        revision: branch, tag or commit of a model on the hub.

    Raises:
        ValueError: there is no such folder or model, no network, a damaged file, or the model needs plug-ins,
            whose code would be executed.
    """
    folder = Path(model)
    if not folder.is_dir():
        folder = _download(str(model), revision)
    config = folder / "config.toml"
    if config.is_file() and (plugins := read_toml(config).get("plugins")):
        raise ValueError(
            f"{folder} needs the plug-ins {plugins}, whose code would be executed: read it, and if you "
            "trust it, call load_model with this folder"
        )
    return load_model(folder, device)


def _download(repo_id: str, revision: str | None) -> Path:
    """Download a model into the cache of huggingface_hub, except for unchanged files."""
    if repo_id.count("/") != 1:
        raise ValueError(f"{repo_id}: no such folder, and not an id of a model on the hub (OWNER/NAME)")
    with _hub(repo_id) as hub:
        return Path(hub.snapshot_download(repo_id, revision=revision, allow_patterns=list(FILES)))


def push_to_hub(
    model: Translator | str | Path, repo_id: str, *, private: bool = False, revision: str | None = None
) -> str:
    """Upload a model to the Hugging Face hub (extra ``hub``), with the files of ``save_pretrained``.

    The token comes from ``hf auth login`` or the environment variable ``HF_TOKEN``.

    Args:
        model: as for ``save_pretrained``, or a folder that it wrote.
        repo_id: OWNER/NAME; the repository is created if it is missing.
        private: make a new repository private.
        revision: an existing branch to upload to; by default the main branch.

    Returns:
        The address of the model.

    Raises:
        ValueError: as for ``save_pretrained``, or the hub cannot be reached or refuses the upload.
    """
    with TemporaryDirectory() as temporary:
        saved = save_pretrained(model, Path(temporary) / "model")
        with _hub(repo_id) as hub:
            api = hub.HfApi()
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            message = "Model saved by attnbench"
            api.upload_folder(folder_path=saved, repo_id=repo_id, revision=revision, commit_message=message)
    return str(address)


def run_folder(model: Translator | str | Path) -> Path:
    """Return ``model``, or the folder that a translator was loaded from; ValueError for an ensemble."""
    if not isinstance(model, Translator):
        return Path(model)
    if model.folder is None:
        raise ValueError(
            "this translator was not loaded from one run (an ensemble?): give the folder of a run"
        )
    return model.folder
