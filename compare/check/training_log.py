"""Check of a training log: against config and batches of the run, and each line against itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice, zip_longest
from typing import Any

from compare.check.findings import RELATIVE_TOLERANCE, ComparedValue, join_differences
from compare.check.run_data import CheckedRun, tokens_by_update
from compare.check.validations import check_choice, last_update
from compare.training.metrics_log import ensure_complete

Line = Mapping[str, Any]
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
        if None not in (recorded, found) or run.is_current:  # earlier versions logged fewer fields
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
