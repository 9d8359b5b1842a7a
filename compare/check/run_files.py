"""Check of a run's files: every hash that must be recorded, vocabulary, and snapshots of the weights."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from compare.check.findings import ComparedValue, Gap
from compare.check.run_data import CheckedRun
from compare.experiment.task import task_of
from compare.results.run_folder import REQUIRED
from compare.training.checkpoints import EMA
from compare.training.file_names import CHECKPOINTS, STATE, WEIGHTS
from compare.training.serialization import average, load_state, load_weights
from data.text.files import hash_file
from data.vocabulary import load_pair


def check_hashes(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare the recorded hash of each file with the file; every file that a figure comes from has one.

    Weights that are not there are no difference: published folders leave them out.
    """
    recorded, found = run.result.files, run.folder.hashes()
    if not recorded and not run.is_current:
        yield Gap("the hashes of files, which that version did not record", run.name)
        return
    required = {*REQUIRED, *run.folder.masks()}
    corpus = None if run.prepared is None else run.prepared.corpus
    required |= task_of(run.folder.run).required_files(run.folder, corpus)
    for name in sorted({*recorded, *required, *found}):
        if name == WEIGHTS and name in recorded and name not in found:
            yield Gap("the hash of the weights, which are not in the folder", run.name)
            continue
        yield ComparedValue(run.name, name, recorded.get(name, "no hash"), found.get(name, "no such file"))
    for test in run.folder.tests:
        plain = run.folder.plain_output(test)
        both = plain.exists() and plain.with_name(f"{plain.name}.gz").exists()
        other = f"{plain.name} as well" if both else "no other file"
        yield ComparedValue(run.name, f"{plain.name}.gz", other, "no other file")


def check_vocabulary(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare the saved vocabularies with those that the run's training text gives."""
    if run.prepared is None:
        return
    try:
        recorded = load_pair(run.folder.folder).content_hash
    except (ValueError, OSError) as error:
        recorded = str(error)
    yield ComparedValue(run.name, "vocabulary", recorded, run.prepared.vocabularies.content_hash)


def check_initial_weights(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare the recorded hash of the weights that training started from with these weights."""
    train = run.folder.run.train
    if train.init_from is None:
        return
    weights = Path(train.init_from) / WEIGHTS
    if weights.is_file():
        yield ComparedValue(run.name, "train.init_hash", train.init_hash, hash_file(weights))
    else:
        yield Gap("the weights that training started from, which are not here", run.name)
    yield Gap("vocabularies, which are those of the run that training started from", run.name)


def check_snapshots(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare the final weights with the snapshots or the moving average that they were chosen from.

    Without the weights themselves, ``check_hashes`` says that they are not in the folder.
    """
    folder, final = run.folder.folder / CHECKPOINTS, run.folder.weights
    chosen = "" if run.final is None else str(run.final.get("chosen"))
    name = f"{CHECKPOINTS}/{final.name}"
    snapshots = [folder / f"update-{int(n):07d}.safetensors" for n in re.findall(r"\d{1,18}", chosen)]
    sources = [folder / STATE] if chosen == EMA else snapshots
    if not sources or not final.is_file():
        return
    if not all(path.is_file() for path in sources):
        yield Gap("that the weights are those chosen in training, whose checkpoints are not here", run.name)
    elif chosen == EMA:
        yield _compare_weights(run, name, chosen, lambda: _moving_average(folder / STATE))
    elif len(snapshots) == 1:
        yield ComparedValue(run.name, f"{name}, {chosen}", hash_file(final), hash_file(snapshots[0]))
    else:
        yield _compare_weights(run, name, chosen, lambda: average(snapshots))


def _compare_weights(
    run: CheckedRun, name: str, chosen: str, compute: Callable[[], Mapping[str, Tensor]]
) -> ComparedValue:
    """Compare the final weights with an average, which ``compute`` reads from the files of training."""
    try:
        weights, mean = load_weights(run.folder.weights), compute()
        same = weights.keys() == mean.keys() and all(torch.equal(weights[key], mean[key]) for key in weights)
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        return ComparedValue(run.name, name, f"the {chosen}", str(error))
    return ComparedValue(run.name, name, f"the {chosen}", f"the {chosen}" if same else "other weights")


def _moving_average(path: Path) -> Mapping[str, Tensor]:
    """Read the moving average from a trainer state."""
    state = load_state(path) or {}
    return dict(state["ema"])
