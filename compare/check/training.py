"""Check of the files of a training: stored run, log, validations, choice of the length penalty."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compare.check.run_data import (
    RELATIVE_TOLERANCE,
    CheckedRun,
    ComparedValue,
    Gap,
    join_differences,
    tokens_by_update,
)
from compare.config.plugins import plugin_problem
from compare.config.sections import TrainConfig
from compare.decoding.length_penalty import length_penalties
from compare.experiment.task import task_of
from compare.results.records import read_selection
from compare.results.result import Result
from compare.results.run_folder import REQUIRED
from compare.training.checkpoints import EMA, Validation
from compare.training.metrics_log import ensure_complete
from compare.training.serialization import CHECKPOINTS, STATE, WEIGHTS, average, load_state, load_weights
from data.files import hash_file
from data.text import hash_decompressed, plain_or_gzip
from data.vocabulary import load_pair

# Check of a run whose plug-ins are not here: its settings, and so its figures, cannot be computed again.


def check_stored(folder: Path, result: Result) -> Iterator[ComparedValue | Gap]:
    """Compare the recorded hash of each file with the file; every file of a finished run must have one.

    Args:
        folder: the folder of the run.
        result: its recorded result.
    """
    required: set[str] = set()
    if result.status == "done":
        texts = {
            path.name.removesuffix(".gz") for form in ("*.hyp", "*.hyp.gz") for path in folder.glob(form)
        }
        required = {*REQUIRED, *texts}
    for name in sorted({*result.files, *required}):
        path, recorded = plain_or_gzip(folder / name), result.files.get(name, "no hash")
        if path.is_file():
            yield ComparedValue(result.run, name, recorded, hash_decompressed(path))
        elif name == WEIGHTS and name in result.files:
            yield Gap("the hash of the weights, which are not in the folder", result.run)
        else:
            yield ComparedValue(result.run, name, recorded, "no such file")
    yield Gap(f"all but the hashes of files, and all tables: {plugin_problem(folder)}", result.run)


# Check of a run's files: every hash that must be recorded, vocabulary, and snapshots of the weights.


def check_hashes(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Compare the recorded hash of each file with the file; every file that a figure comes from has one.

    Weights that are not there are no difference: published folders leave them out.
    """
    recorded, found = run.result.files, run.folder.hashes()
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


# Check of the weights that training chose: best validation, average, early stop, and the final line.


Line = Mapping[str, Any]


def best_validations(lines: Sequence[Line]) -> Iterator[tuple[Line, Line, int]]:
    """Give each validation, the best one until then, and how many validations have passed since the best.

    The best has the highest BLEU, and of equal ones, or without BLEU, the lowest loss.
    """
    best, worse = None, 0
    for line in lines:
        if line["kind"] == "valid":
            better = best is None or _scores(line).is_better(_scores(best))
            best, worse = (line, 0) if better or best is None else (best, worse + 1)
            yield line, best, worse


def _scores(line: Line) -> Validation:
    return Validation(loss=line["loss"], bleu=line["bleu"])


def last_update(run: CheckedRun) -> int:
    """Return the update at which training ends by the config: the last, or that of an early stop."""
    train = run.folder.run.train
    for line, _, worse in best_validations(run.lines):
        if 0 < train.patience <= worse:
            return int(line["update"])
    return train.max_updates


def check_choice(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare the final line with the validations, and the trainer state with the log."""
    validations = list(best_validations(run.lines))
    if run.final is None or not validations:
        return
    train = run.folder.run.train
    validated, best = [line["update"] for line, _, _ in validations], validations[-1][1]
    averaged = _averaged_updates(train, validated)
    averages = {
        "average": ("averaged weights", len(averaged) > 1, f"average of updates {averaged}"),
        "ema": ("the moving average", train.ema > 0, EMA),
    }
    scores, chosen = best, f"update {best['update']}"
    for kind, (weights, expected_line, name) in averages.items():
        line = next((line for line in run.lines if line["kind"] == kind), None)
        context = f"metrics.jsonl: validation of {weights}"
        yield ComparedValue(run.name, context, int(line is not None), int(expected_line))
        if line is not None and _scores(line).quality > _scores(scores).quality:
            scores, chosen = line, name
    expected = {
        "update": validated[-1],
        "best_update": best["update"],
        "chosen": chosen,
        "loss": scores["loss"],
        "bleu": scores["bleu"],
    }
    for name, value in expected.items():
        yield ComparedValue(run.name, f"metrics.jsonl: {name} of the final line", run.final.get(name), value)
    yield from _check_state(run, best)


def _averaged_updates(train: TrainConfig, validated: Sequence[int]) -> list[int]:
    """List the updates whose weights were averaged: the last at even distances, or the last validated."""
    every = train.average_every
    updates = range(every, validated[-1] + 1, every) if every else validated
    return list(updates[-train.average :])


def _check_state(run: CheckedRun, best: Line) -> Iterator[ComparedValue]:
    """Compare the trainer state, if it is still there, with the end of the log."""
    path = run.folder.folder / CHECKPOINTS / STATE
    try:
        state = load_state(path)
        progress = None if state is None else state.get("progress")
    except ValueError as error:
        yield ComparedValue(run.name, f"{CHECKPOINTS}/{STATE}", "a trainer state", str(error))
        return
    if progress is None:
        return
    windows = [line for line in run.lines if line["kind"] == "train"]
    expected = {
        "update": windows[-1]["update"],
        "tokens": sum(line["src_tokens"] + line["tgt_tokens"] for line in windows),
        "best_update": best["update"],
        "best_bleu": best["bleu"],
        "best_loss": best["loss"],
    }
    for name, value in expected.items():
        yield ComparedValue(run.name, f"{CHECKPOINTS}/{STATE}: {name}", progress.get(name), value)


# Check of a training log: against config and batches of the run, and each line against itself.


SECONDS = 0.002
"""Largest difference of two times of which one is rounded to milliseconds."""


def check_log(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare the lines of metrics.jsonl with everything that determines them.

    The learning rate follows from the schedule, the token counts from the batches of the run's seed, the
    speed from tokens and seconds, the loss from its sum, and the choice of weights from the validations.
    """
    try:
        ensure_complete(run.lines, "metrics.jsonl")
    except ValueError as error:
        yield ComparedValue(run.name, "metrics.jsonl", "every field", str(error))
        return
    windows = [line for line in run.lines if line["kind"] == "train"]
    yield from _check_updates(run)
    for name, compute in _formulas(run, windows).items():
        yield from join_differences(_check_lines(run, windows, name, compute))
    yield from join_differences(_check_seconds(run))
    yield from check_choice(run)


def _check_updates(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare the updates of the lines with the intervals in the config."""
    train = run.folder.run.train
    end = last_update(run)
    validated = range(train.valid_every, end, train.valid_every)
    logged = range(train.log_every, end, train.log_every)
    for kind, intervals in (("train", (logged, validated)), ("valid", (validated,))):
        updates = [line["update"] for line in run.lines if line["kind"] == kind]
        expected = (update for update, _ in groupby(merge(*intervals, [end])))  # lazy: it could be endless
        pairs = zip_longest(updates, islice(expected, len(updates) + (run.final is not None)))
        yield from join_differences(
            ComparedValue(run.name, f"metrics.jsonl: update of {kind} line {number}", *pair)
            for number, pair in enumerate(pairs, start=1)
        )


def _formulas(run: CheckedRun, windows: Sequence[Line]) -> dict[str, Callable[[Line], Any]]:
    """Return, for each field of a train line that other values determine, the function that computes it."""
    settings = run.folder.run
    before = {line["update"]: start for line, start in zip(windows, _starts(windows), strict=True)}
    formulas: dict[str, Callable[[Line], Any]] = {
        "updates": lambda line: line["update"] - before[line["update"]],
        "learning_rate": lambda line: settings.model.optim.learning_rate_at(
            line["update"], settings.train.max_updates
        ),
        "loss": lambda line: line["nll"] / max(1, line["tgt_tokens"]) if "nll" in line else None,
        "tokens_per_s": lambda line: (
            (line["src_tokens"] + line["tgt_tokens"]) / max(1e-9, line["data_s"] + line["train_s"])
        ),
    }
    if run.prepared is None or not windows:
        return formulas
    # Not more updates than log and config both name: one of them could have a number of any size.
    counts = tokens_by_update(run.prepared, min(windows[-1]["update"], settings.train.max_updates))

    def difference(line: Line, side: int) -> int:
        end, start = (min(update, len(counts) - 1) for update in (line["update"], before[line["update"]]))
        return counts[end][side] - counts[start][side]

    return formulas | {
        "src_tokens": lambda line: difference(line, 1),
        "tgt_tokens": lambda line: difference(line, 2),
        "epoch": lambda line: counts[min(line["update"], len(counts) - 1)].epoch,
    }


def _starts(windows: Sequence[Line]) -> list[int]:
    """Return the update before the first one of each train line."""
    return [0, *(line["update"] for line in windows)][: len(windows)]


def _check_lines(
    run: CheckedRun, windows: Sequence[Line], name: str, compute: Callable[[Line], Any]
) -> Iterator[ComparedValue]:
    """Compare one field of every train line with its formula."""
    for line in windows:
        recorded, found = line.get(name), compute(line)
        if recorded is not None:
            context = f"metrics.jsonl: {name} of update {line['update']}"
            yield ComparedValue(run.name, context, recorded, found)


def _check_seconds(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare the clock of every line with the sum of the times logged until then."""
    total = 0.0
    for line in run.lines:
        if line["kind"] == "train":
            total += line["data_s"] + line["train_s"]
        if (recorded := line.get("seconds")) is not None:
            close = abs(recorded - total) <= SECONDS + RELATIVE_TOLERANCE * total
            name = f"metrics.jsonl: seconds of the {line['kind']} line of update {line['update']}"
            yield ComparedValue(run.name, name, recorded, recorded if close else round(total, 3))


# Check of selection.json: the length penalty that was chosen on validation.


def check_selection(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare grid, choice and weights of selection.json with config, rule and result."""
    penalties = length_penalties(run.folder.run.decode)
    if len(penalties) == 1:
        return
    try:
        selection = read_selection(run.folder.selection, penalties)  # checks the grid and the rule
    except (ValueError, OSError) as error:
        reason = str(error).removeprefix(f"{run.folder.selection}: ")
        yield ComparedValue(run.name, run.folder.selection.name, "a choice by the rule", reason)
        return
    weights = run.folder.weights
    name = weights.relative_to(run.folder.folder).as_posix()
    found = hash_file(weights) if weights.is_file() else run.result.files.get(name, "no hash")
    yield ComparedValue(run.name, f"{run.folder.selection.name}: weights", selection.weights, found)
