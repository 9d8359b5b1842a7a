"""Check of the weights that training chose: best validation, average, early stop, and the final line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compare.check.findings import ComparedValue
from compare.check.run_data import CheckedRun
from compare.config.training_sections import TrainConfig
from compare.training.checkpoints import EMA
from compare.training.file_names import CHECKPOINTS, STATE
from compare.training.serialization import load_state
from compare.training.trainer_state import Validation

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
