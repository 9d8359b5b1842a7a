"""Estimate of the time and memory that runs take, by some updates of each model."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch

from compare.config.resolve import Run
from compare.experiment.open_runs import PlannedRun
from compare.experiment.prepare import PreparedData
from compare.experiment.start import trunk_updates
from compare.experiment.timing import TrainingWork, first_updates, timing_seconds
from compare.models.registry import build, build_meta_model, count_weights, training_bytes
from compare.system.device import set_numerics
from compare.system.log import format_duration
from compare.system.messages import is_out_of_memory
from compare.system.timer import best_of
from compare.training.log import read_metrics

logger = logging.getLogger(__name__)

PART_FLOPS = {"cpu": 1e10, "cuda": 1e13}
"""FLOPs of a timed forward and backward pass by kind of device: some tenths of a second."""
LONG_FLOPS = 1e11
"""Work of training below which its duration is not worth an estimate: about ten seconds of a core."""
TIMED = 3


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """One run, and its expected cost."""

    name: str
    status: str
    """new, unfinished, done or failed."""
    params: int
    memory_bytes: int
    """Weights, gradients, AdamW's moments and the moving average, without activations."""
    updates: int
    updates_left: int
    """Updates still to do; fewer if patience stops the run."""
    train_s: float | None
    """Seconds of these updates, without validation, translation and timing; None: not measured."""
    timing_s: float
    """Least seconds of timing the model, after the last run."""
    budget_changes: str
    """Widths before and after matching."""


def log_duration(runs: Sequence[PlannedRun], prepared: PreparedData) -> None:
    """Log about how long the training that is left takes, by some updates of each model."""
    left = [run for run in runs if not run.has_ended]
    work = (run.run.train.max_updates * _flops_per_update(run.run, prepared) for run in left)
    if sum(work) < LONG_FLOPS:
        return
    times = [estimate.train_s for estimate in estimate_runs(runs, prepared)]
    if None not in times:
        logger.info(
            f"{len(left)} runs: about {format_duration(sum(filter(None, times)))} of training, one after the "
            "other; validation, translation of the test sets and timing take more"
        )


def estimate_runs(runs: Sequence[PlannedRun], prepared: PreparedData) -> list[RunEstimate]:
    """Estimate each run; some updates of its model are timed."""
    by_label = {planned.run.label: planned.run for planned in runs if not planned.has_ended}
    seconds = {label: _seconds_per_update(run, prepared) for label, run in by_label.items()}
    first = trunk_updates(runs)
    return [
        _estimate(planned, prepared, seconds.get(planned.run.label, 0.0), first[planned.name])
        for planned in runs
    ]


def _estimate(
    planned: PlannedRun, prepared: PreparedData, per_update: float | None, done: int
) -> RunEstimate:
    run = planned.run
    model = build_meta_model(run.model.architecture, *prepared.vocabulary_sizes)
    if planned.status == "unfinished" and planned.metrics.is_file():
        done = max((line["update"] for line in read_metrics(planned.metrics)), default=done)
    left = 0 if planned.has_ended else max(0, run.train.max_updates - done)
    return RunEstimate(
        name=run.name,
        status=planned.status,
        params=count_weights(model),
        memory_bytes=training_bytes(model, ema=run.train.ema > 0),
        updates=run.train.max_updates,
        updates_left=left,
        train_s=None if per_update is None else left * per_update,
        timing_s=timing_seconds(run),
        budget_changes=run.budget.changed,
    )


def _seconds_per_update(run: Run, prepared: PreparedData) -> float | None:
    """Time some updates; None without the device of the run, or with too little memory.

    A part of a long batch is timed, and the time multiplied.
    """
    device = torch.device(run.train.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        return None
    part_flops = PART_FLOPS.get(device.type, PART_FLOPS["cuda"])
    parts = max(run.train.accumulate, ceil(_flops_per_update(run, prepared) / part_flops))
    (batch,) = first_updates(prepared.stream, 1, parts)
    try:
        with torch.random.fork_rng(devices=[]):
            set_numerics(device, deterministic=run.train.deterministic)
            model = build(run.model.architecture, *prepared.vocabulary_sizes).to(device)
            return len(batch) * best_of(TrainingWork(run, model, [batch[:1]]), device, repeats=TIMED)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _flops_per_update(run: Run, prepared: PreparedData) -> float:
    counts = prepared.stream.token_counts(1)
    flops = prepared.training_flops(run.model.architecture, run.regularization.passes)
    return flops * float(counts.sum()) / len(counts)
