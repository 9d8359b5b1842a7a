"""Measure how long an update of each model takes on this machine."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compare.config.run import Run
from compare.experiment.build_trainer import build_trainer
from compare.experiment.data_parallel import announced
from compare.experiment.prepare import PreparedData
from compare.results.run_folder import RunFolder
from compare.system.distributed import SINGLE, Processes
from compare.system.hints import first_line
from compare.system.memory import is_out_of_memory
from compare.training.trainer import TrainingDiverged
from compare.training.trainer_state import Validation

logger = logging.getLogger(__name__)

ROUNDS, LINES, UPDATES_PER_LINE = 3, 4, 25
"""Rounds per model, log lines per round, and updates per log line."""
SecondsPerUpdate = Mapping[str, float]
"""Seconds per update by label."""


def describe_work(runs: Sequence[Run]) -> dict[str, str]:
    """Hash by label what decides how long an update takes, apart from the machine."""
    work = {run.label: (run.model.architecture, run.train.device, run.train.precision) for run in runs}
    return {label: sha256(repr(each).encode()).hexdigest() for label, each in work.items()}


def recall(registry: Mapping[str, Any], runs: Sequence[Run]) -> SecondsPerUpdate:
    """Return the seconds of an experiment.json, without those of models that have been changed since."""
    work = describe_work(runs)
    before = registry.get("calibrated_as", {})  # earlier versions did not record it
    return {
        label: seconds
        for label, seconds in registry.get("seconds_per_update", {}).items()
        if label not in before or before[label] == work.get(label, before[label])
    }


def calibrate(
    runs: Sequence[Run], prepared: PreparedData, known: SecondsPerUpdate, processes: Processes = SINGLE
) -> SecondsPerUpdate:
    """Measure the seconds per update of each model that is not yet ``known``.

    Each is trained by all processes from fresh weights as its run will be, several times: the rounds are
    apart in time, so that a disturbance of the machine is spread over all models. The first log line of each
    round is warm-up.

    Raises:
        ValueError: training a model diverges, or needs too much memory.
    """
    unknown = [run for run in runs if run.label not in known]
    spent = {run.label: 0.0 for run in unknown}
    tokens = dict.fromkeys(spent, 0)
    for number, run in product(range(ROUNDS), unknown):
        for line in _train_or_explain(run, prepared, processes):
            spent[run.label] += line["train_s"]
            tokens[run.label] += line["src_tokens"] + line["tgt_tokens"]
        rate = tokens[run.label] / spent[run.label]
        logger.info(f"calibrating, round {number + 1} of {ROUNDS}: {run.label} {rate:,.0f} tokens/s")
    per_update = float(prepared.stream.token_counts(1).sum(axis=1).mean())
    return {**known, **{label: per_update * spent[label] / tokens[label] for label in spent}}


def _train_or_explain(run: Run, prepared: PreparedData, processes: Processes) -> list[dict[str, Any]]:
    """Call ``_train_briefly``; what would end the run alone, if it had begun, is a ValueError."""
    try:
        return _train_briefly(run, prepared, processes)
    except (TrainingDiverged, MemoryError, RuntimeError) as error:
        if not isinstance(error, TrainingDiverged) and not is_out_of_memory(error):
            raise
        raise ValueError(
            f"models.{run.label} cannot be calibrated for budget.match = 'time': {first_line(error)}"
        ) from error


def _train_briefly(run: Run, prepared: PreparedData, processes: Processes) -> list[dict[str, Any]]:
    """Train for some updates with the training loop of a run; returns its log lines after the first."""
    updates = LINES * UPDATES_PER_LINE
    train = replace(
        run.train,
        max_updates=updates,
        log_every=UPDATES_PER_LINE,
        valid_every=updates,
        checkpoint_every=updates,
        patience=0,
        average=1,
        average_every=0,  # a moving average stays: it is a part of every update
    )
    lines: list[dict[str, Any]] = []
    no_validation = partial(Validation, loss=0.0, bleu=0.0)
    with TemporaryDirectory() as folder:
        short = RunFolder(run=replace(run, train=train), folder=Path(folder))
        with announced(short, prepared, processes, validate=no_validation):
            trainer, _ = build_trainer(
                short, prepared, lines.append, validate=no_validation, processes=processes
            )
            trainer.run()
    return [line for line in lines if line["kind"] == "train"][1:]
