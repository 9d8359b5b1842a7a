"""Dry run and estimate of the cost of an experiment; nothing is written."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from compare.config.resolve import Run
from compare.config.sections import Experiment
from compare.experiment.folder import PlannedRun, open_runs
from compare.experiment.launch import Launch
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run import check_with_data, match_models, plan_models
from compare.experiment.start import trunk_updates
from compare.experiment.timing import TrainingWork, first_updates, timing_seconds
from compare.models.registry import build, build_meta_model, count_weights, training_bytes
from compare.system.device import set_numerics, tune_cpu
from compare.system.messages import is_out_of_memory
from compare.system.timer import best_of
from compare.training.log import read_metrics

logger = logging.getLogger(__name__)

PART_FLOPS = {"cpu": 1e10, "cuda": 1e13}
"""FLOPs of a timed forward and backward pass by kind of device: some tenths of a second."""
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


def estimate_experiment(
    experiment: Experiment,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launch: Launch | None = None,
    tests: bool = True,
    timed: bool = True,
) -> list[RunEstimate]:
    """Check what ``run_experiment`` would do, with its arguments and errors, without writing any file.

    Without ``timed``, training times are unknown.
    """
    folder, seeds = Path(folder), seeds or experiment.seeds
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    models = plan_models(experiment, folder, context, launch)
    with TemporaryDirectory() as encoded:
        prepare = cache(partial(prepare_data, models[0], Path(encoded), tests=tests))
        runs = open_runs(match_models(models, prepare), folder, seeds, only)
        prepared = prepare()
        check_with_data(runs, prepared, folder, experiment.systems if tests else ())
        by_label = {run.run.label: run.run for run in runs}
        for label, run in by_label.items():
            for warning in run.warnings:
                logger.warning(f"{label}: {warning}")
        seconds = {label: _seconds_per_update(run, prepared) for label, run in by_label.items() if timed}
        first = trunk_updates(runs)
        return [_estimate(run, prepared, seconds.get(run.run.label), first[run.name]) for run in runs]


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
    flops = prepared.training_flops(run.model.architecture, run.regularization.passes)
    counts = prepared.stream.token_counts(1)
    part_flops = PART_FLOPS.get(device.type, PART_FLOPS["cuda"])
    parts = max(run.train.accumulate, ceil(flops * float(counts.sum()) / len(counts) / part_flops))
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
