"""Training of one model on sentence pairs in memory: corpus folder and experiment as by the commands."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from compare.config.parse import load_experiment
from compare.config.starter import starter_experiment
from compare.decoding.translator import Translator
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import check_output_folder
from compare.system.log import Reporter
from compare.system.messages import abbreviate
from compare.system.processes import lock_folder
from data.files import hash_file, json_bytes, write_atomically
from data.formats import Records
from data.prepare import PreparationPlan, prepare_corpus, run_first_pass


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
        reporter: shows the progress of training.

    Returns:
        The trained model, on the device that it was trained on; its ``folder`` is that of the run.

    Raises:
        ValueError: a pair is not two texts, there are too few, ``folder`` holds a model of other pairs, a
            setting is wrong, or the training failed.
        Interrupted: a signal arrived; the same call continues.
    """
    folder = Path(folder)
    check_output_folder(folder)
    with lock_folder(folder, wait=True):
        config = _prepare(pairs, folder, preset, langs, valid, test)
    trained_on = {RunFolder.read(path.parent).run.data.root for path in folder.glob("*/config.toml")}
    if not trained_on <= {str(config.parent.absolute())}:
        raise ValueError(
            f"{folder} holds a model of other pairs than these, or of other languages or sizes of valid and "
            "test: choose another folder, such as folder='runs/fit2'"
        )
    experiment = load_experiment(config, overrides)
    (model,) = experiment.models
    model = dataclasses.replace(model, overrides={**model.overrides, **(settings or {})})
    experiment = dataclasses.replace(experiment, models=(model,))
    (result,) = run_experiment(experiment, folder, reporter, context=str(config))
    run = folder / result.run
    if result.status != "done":
        raise ValueError(f"{run}: training {result.status}: {result.reason or 'call fit again to continue'}")
    return load_model(run, RunFolder.read(run).run.train.device)


def _prepare(
    pairs: Iterable[Sequence[str]],
    folder: Path,
    preset: str,
    langs: tuple[str, str],
    valid: int | None,
    test: int | None,
) -> Path:
    """Divide the pairs, unless that has been done, and write the experiment's file; return its path.

    The name of the corpus is a hash of what it is made of, so another call never meets one of other pairs.

    Raises:
        ValueError: the pairs cannot be used.
    """
    path = folder / "pairs.jsonl"
    try:
        _write_pairs(pairs, path)
        plan = PreparationPlan(
            sources=[Records(path=path, fields=("src", "tgt"))], langs=langs, valid=valid, test=test
        )
        first_pass = run_first_pass(plan)
        text = starter_experiment(plan.langs, first_pass, first_pass.sizes, [preset])
        made_of = repr((hash_file(path), langs, valid, test))
        corpus = folder / f"corpus-{sha256(made_of.encode()).hexdigest()[:12]}"
        if not corpus.exists():
            prepare_corpus(plan, corpus)
    finally:
        path.unlink(missing_ok=True)
    config = corpus / f"{preset}.toml"
    write_atomically(config, text)
    return config


def _write_pairs(pairs: Iterable[Sequence[str]], path: Path) -> None:
    """Write one JSON object per pair.

    Raises:
        ValueError: an entry is not two texts, or there is none.
    """
    with path.open("wb") as file:
        for number, pair in enumerate(pairs):
            is_list = isinstance(pair, Sequence) and not isinstance(pair, str)
            if not is_list or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise ValueError(f"pairs[{number}] must be a source and its target, found {abbreviate(pair)}")
            file.write(json_bytes({"src": pair[0], "tgt": pair[1]}) + b"\n")
    if path.stat().st_size == 0:
        raise ValueError("no pairs: give (source, target) texts")
