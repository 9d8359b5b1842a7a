"""Training of one model on sentence pairs in memory: corpus folder and experiment as by the commands."""

import dataclasses
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from compare.config.parse import load_experiment
from compare.config.starter import starter_experiment
from compare.decoding.translator import Translator
from compare.experiment.run import run_experiment
from compare.models.presets import list_presets
from compare.results.run_folder import RunFolder
from compare.results.store import check_output_folder
from compare.results.trained_model import load_model
from compare.system.log import Reporter
from compare.system.messages import abbreviate
from compare.system.signals import LOCK, Locked, lock_folder
from data.files import hash_file, json_bytes, parse_json, read_bytes, temporary_path, write_atomically
from data.formats import Records
from data.prepare import MANIFEST, PreparationPlan, prepare_corpus, run_first_pass, summary

logger = logging.getLogger(__name__)

PAIRS = "pairs.jsonl"
"""The pairs as given, one JSON object per line, in the folder of the experiment."""
CORPUS = "corpus"
"""The corpus folder made of them, in the same folder."""
MAX_BYTES = 1_000_000
"""Size that the manifest of such a corpus does not reach."""


def fit(
    pairs: Iterable[Sequence[str]],
    *,
    preset: str = "transformer",
    folder: str | Path = "runs/fit",
    langs: tuple[str, str] = ("src", "tgt"),
    settings: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    valid: int | None = None,
    test: int | None = None,
    reporter: Reporter | None = None,
) -> Translator:
    """Train a model on sentence pairs, and score and time it as ``attnbench run`` does.

    The pairs are divided into train, valid and test sets as by ``attnbench data prepare``; vocabulary, sizes,
    learning rate and updates are chosen by the number of pairs. The same call continues a training that was
    stopped, and only loads one that has ended. A call with another preset adds a model to the folder, so that
    ``load_results(folder)`` compares both on the same test set.

    Args:
        pairs: (source, target) texts; a line feed in a text becomes a space, a pair with a blank side is
            dropped.
        preset: name of the model, of ``list_presets()``; one of paper size keeps its sizes.
        folder: where corpus and run are kept.
        langs: source and target language, such as ("de", "en").
        settings: settings that replace those of the model, such as {"d_model": 128}.
        overrides: settings ``section.key=value`` of everything else, such as "train.max_updates=500".
        valid: number of pairs of the validation set; None: a tenth, at most 1,000.
        test: number of pairs of the test set, likewise.
        reporter: shows the progress of training; by default log messages do.

    Returns:
        The trained model, on the device that it was trained on; its ``folder`` is that of the run.

    Raises:
        ValueError: a pair is not two texts, there are too few, ``folder`` holds other pairs, a setting is
            wrong, or the training failed.
        Interrupted: a signal arrived; the same call continues.
    """
    folder = Path(folder)
    check_output_folder(folder)
    with ExitStack() as use:
        with lock_folder(folder, wait=True):
            path = _prepare_folder(pairs, folder, preset, langs, valid, test)
            with suppress(Locked):  # a call with another preset uses the corpus at the same time
                use.enter_context(lock_folder(folder / CORPUS))
        experiment = load_experiment(path, overrides)
        (model,) = experiment.models
        model = dataclasses.replace(model, overrides={**model.overrides, **(settings or {})})
        experiment = dataclasses.replace(experiment, models=(model,))
        (result,) = run_experiment(experiment, folder, reporter, context=str(path))
    run = folder / result.run
    if result.status != "done":
        raise ValueError(f"{run}: training {result.status}: {result.reason or 'call fit again to continue'}")
    return load_model(run, RunFolder.read(run).run.train.device)


def _prepare_folder(
    pairs: Iterable[Sequence[str]],
    folder: Path,
    preset: str,
    langs: tuple[str, str],
    valid: int | None,
    test: int | None,
) -> Path:
    """Keep the pairs and divide them; return the path of the experiment's file.

    A new folder does not keep pairs that cannot be used. The caller holds the lock of the folder.

    Raises:
        ValueError: see ``fit``.
    """
    is_new = not (folder / PAIRS).exists()
    kept = _keep_pairs(pairs, folder)
    source = Records(path=kept, fields=("src", "tgt"))
    plan = PreparationPlan(sources=[source], langs=langs, valid=valid, test=test)
    try:
        return _prepare(plan, folder / CORPUS, preset)
    except (ValueError, OSError):
        if is_new:
            kept.unlink(missing_ok=True)
        raise


def _prepare(plan: PreparationPlan, corpus: Path, preset: str) -> Path:
    """Divide the pairs, unless that has been done, and write the experiment's file; return its path.

    Raises:
        ValueError: the pairs cannot be used, or there are runs on a corpus that was divided otherwise.
    """
    first_pass = run_first_pass(plan)
    text = starter_experiment(plan.langs, first_pass, first_pass.sizes, [preset])
    same = summary(plan, first_pass).items() <= _read_manifest(corpus).items()
    if corpus.exists() and not same and not _discard(corpus):
        raise ValueError(f"{corpus} has other languages or sizes of valid and test: choose another folder")
    if not corpus.exists():
        prepare_corpus(plan, corpus)
    path = corpus / f"{preset}.toml"
    write_atomically(path, text)
    return path


def _discard(corpus: Path) -> bool:
    """Delete a corpus that an earlier, mistaken call made and no run has used; return whether it was one.

    It is not one if another call uses it now, or if a file in it was added or changed later.
    """
    manifest = _read_manifest(corpus)
    made_of = [Path(str(each["path"])).name for each in manifest.get("inputs", [])]
    if made_of != [PAIRS] or any(corpus.parent.glob("*/config.toml")):
        return False
    own = {MANIFEST, *(f"{preset}.toml" for preset in list_presets())}
    try:
        with lock_folder(corpus):
            files = [path for path in corpus.iterdir() if path.name != LOCK]
            if not all(path.name in own or _is_output(path, manifest) for path in files):
                return False
            for path in files:
                path.unlink()
    except Locked:
        return False
    shutil.rmtree(corpus)  # empty, but for a lock that the system keeps
    return True


def _is_output(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether a file is as the manifest describes it."""
    entry = manifest.get("outputs", {}).get(path.name)
    return entry is not None and path.is_file() and hash_file(path) == entry.get("sha256")


def _read_manifest(corpus: Path) -> dict[str, Any]:
    """Read how the pairs were divided; empty where that is not known."""
    try:
        return dict(parse_json(read_bytes(corpus / MANIFEST, max_bytes=MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        return {}


def _keep_pairs(pairs: Iterable[Sequence[str]], folder: Path) -> Path:
    """Write the pairs to ``folder``, or find those of an earlier call there; return the file.

    Raises:
        ValueError: an entry is not two texts, or the folder holds other pairs.
    """
    path = folder / PAIRS
    folder.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with temporary.open("xb") as file:
            for number, pair in enumerate(pairs):
                if (
                    not isinstance(pair, Sequence)
                    or isinstance(pair, str)
                    or len(pair) != 2
                    or not all(isinstance(t, str) for t in pair)
                ):
                    raise ValueError(
                        f"pairs[{number}] must be a source and its target, found {abbreviate(pair)}"
                    )
                file.write(json_bytes({"src": pair[0], "tgt": pair[1]}) + b"\n")
        if temporary.stat().st_size == 0:
            raise ValueError("no pairs: give (source, target) texts")
        if not path.exists() or (hash_file(path) != hash_file(temporary) and _discard(folder / CORPUS)):
            temporary.replace(path)
        elif hash_file(path) != hash_file(temporary):
            raise ValueError(
                f"{folder} holds other pairs than these: choose another folder, such as folder='runs/fit2'"
            )
    finally:
        temporary.unlink(missing_ok=True)
    return path
