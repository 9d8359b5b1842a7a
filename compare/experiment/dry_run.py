"""Dry run and estimate of the cost of an experiment; nothing is written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from compare.config.run import Run
from compare.config.sections import Experiment
from compare.experiment.budget import match_budget
from compare.experiment.compute_result import training_flops
from compare.experiment.folder import find_shorter, open_registry, request_runs
from compare.experiment.launch import Launch
from compare.experiment.prepare import (
    PreparedData,
    ensure_initial_weights_fit,
    ensure_models_fit,
    prepare_data,
)
from compare.experiment.run import plan_models
from compare.experiment.timing import fresh_update_work
from compare.models.registry import build_meta_model, training_bytes
from compare.results.run_folder import RunFolder
from compare.results.store import read_result
from compare.system.cpu import tune_cpu
from compare.system.measure import best_of, is_out_of_memory
from compare.training.metrics_log import read_metrics

# Estimate of what runs will take: weights, memory, updates and time, from a short measurement.


PART_FLOPS = {"cpu": 1e10, "cuda": 1e13}
"""Work of a timed forward and backward pass by kind of device: some tenths of a second."""
MAX_SENTENCE_PARTS = 10
"""A model is not timed if a single sentence takes this many times ``PART_FLOPS``."""
MAX_CPU_BYTES = 4e9
"""A model with more memory for its weights and their training is not timed on a processor."""
TIMED = 3
"""Updates that are timed, after one of warm-up."""


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """One run, and what it is expected to take."""

    name: str
    """<label>-seed<k>."""
    status: str
    """new, unfinished, done or failed."""
    params: int
    """Trained weights."""
    memory_bytes: int
    """Weights, gradients, the two moments of AdamW and a moving average if there is one; activations, of two
    passes with consistency regularisation, come on top."""
    updates: int
    """Updates of the whole training."""
    updates_left: int
    """Updates that the run would still do; fewer if patience stops it."""
    train_s: float | None
    """Seconds of these updates, without validation, translation and timing; None: could not be measured."""


def estimate_runs(runs: Sequence[RunFolder], prepared: PreparedData) -> list[RunEstimate]:
    """Estimate every run, by some updates of each model with fresh weights on this machine.

    Args:
        runs: the runs, resolved.
        prepared: their data.
    """
    models = {run.run.label: run.run for run in runs}
    sizes = {label: _count_weights(run, prepared) for label, run in models.items()}
    seconds = {
        label: _seconds_per_update(run, prepared, sizes[label]["memory_bytes"])
        for label, run in models.items()
    }
    return [_estimate(run, sizes[run.run.label], seconds[run.run.label]) for run in runs]


def total_seconds(estimates: Sequence[RunEstimate]) -> float | None:
    """Add the seconds of all runs; None if those of one are unknown."""
    known = [each.train_s for each in estimates if each.train_s is not None]
    return sum(known) if len(known) == len(estimates) else None


def _estimate(folder: RunFolder, size: Mapping[str, int], seconds: float | None) -> RunEstimate:
    """Describe one run; its model takes ``seconds`` per update."""
    status, done = "new", 0
    if folder.config.is_file():
        status = read_result(folder.folder).status
        if status == "unfinished" and folder.metrics.is_file():
            done = max((line["update"] for line in read_metrics(folder.metrics)), default=0)
    updates = folder.run.train.max_updates
    left = updates - done if status in ("new", "unfinished") else 0
    return RunEstimate(
        name=folder.run.name,
        status=status,
        updates=updates,
        updates_left=left,
        train_s=None if seconds is None else left * seconds,
        **size,
    )


def _count_weights(run: Run, prepared: PreparedData) -> dict[str, int]:
    """Count weights and bytes without allocating the model."""
    model = build_meta_model(run.model.architecture, *prepared.vocabulary_sizes)
    return {
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "memory_bytes": training_bytes(model, ema=run.train.ema > 0),
    }


def _seconds_per_update(run: Run, prepared: PreparedData, memory_bytes: int) -> float | None:
    """Time some updates; None if the device of the run is not here, or the model too large for a short look.

    Of a batch that would take long, one of equal parts is computed, and its time is multiplied.
    """
    device = torch.device(run.train.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        return None
    if device.type == "cpu" and memory_bytes > MAX_CPU_BYTES:
        return None
    flops = training_flops(run.model.architecture, prepared=prepared, passes=run.regularization.passes)
    counts = prepared.stream.token_counts(1)
    tokens = float(counts.sum())
    part_flops = PART_FLOPS.get(device.type, PART_FLOPS["cuda"])
    if flops * tokens / len(prepared.train) > MAX_SENTENCE_PARTS * part_flops:
        return None
    parts = max(run.train.accumulate, ceil(flops * tokens / len(counts) / part_flops))
    batch = next(prepared.stream.global_batches(1, accumulate=parts))
    rng = torch.get_rng_state()
    try:
        work = fresh_update_work(run, prepared, [batch.parts[:1]])
        return len(batch.parts) * best_of(work, device, repeats=TIMED)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        torch.set_rng_state(rng)


# What a call would run: settings, folder and data are checked, and nothing is written.


def dry_run(
    experiment: Experiment,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launch: Launch | None = None,
    tests: bool = True,
) -> list[Run]:
    """Check settings, folder and data as ``run_experiment`` would, without writing any file.

    Args:
        experiment: as for ``run_experiment``.
        folder: where the runs would be kept.
        seeds: as for ``run_experiment``.
        only: as for ``run_experiment``.
        context: the file that error messages name.
        launch: as for ``run_experiment``.
        tests: as for ``run_experiment``.

    Returns:
        The runs that ``run_experiment`` would finish; a budget of time, which needs a calibration, is not yet
        matched in them.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
    """
    with _planned(experiment, Path(folder), seeds, only, context, launch, tests=tests) as (runs, _):
        return [run.run for run in runs]


def estimate_experiment(
    experiment: Experiment,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launch: Launch | None = None,
    tests: bool = True,
) -> list[RunEstimate]:
    """Estimate the size, memory and training time of the runs of ``dry_run``.

    Some updates of each model are timed on this machine; see ``RunEstimate`` for what the figures include.

    Args:
        experiment: as for ``run_experiment``.
        folder: where the runs would be kept.
        seeds: as for ``run_experiment``.
        only: as for ``run_experiment``.
        context: the file that error messages name.
        launch: as for ``run_experiment``.
        tests: as for ``run_experiment``.

    Raises:
        ValueError, OSError: as for ``dry_run``.
    """
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    with _planned(experiment, Path(folder), seeds, only, context, launch, tests=tests) as (runs, prepared):
        return estimate_runs(runs, prepared)


@contextmanager
def _planned(
    experiment: Experiment,
    folder: Path,
    seeds: Sequence[int],
    only: Sequence[str],
    context: str,
    launch: Launch | None,
    *,
    tests: bool,
) -> Iterator[tuple[list[RunFolder], PreparedData]]:
    """Yield the runs and their data, which are encoded in a folder that is removed again."""
    models = plan_models(experiment, folder, context, launch)
    if experiment.budget.match == "none":
        find_shorter(request_runs(models, folder, seeds, only))
    with TemporaryDirectory() as encoded:
        prepared = prepare_data(experiment, Path(encoded), tests=tests)
        open_registry(folder, prepared)
        if experiment.budget.match in ("params", "flops"):
            models = match_budget(models, prepared, {})
        ensure_models_fit(models, prepared.vocabulary_sizes)
        runs = request_runs(models, folder, seeds, only)
        ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
        yield runs, prepared
