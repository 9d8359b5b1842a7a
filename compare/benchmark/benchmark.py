"""Timing of every model of an experiment in every phase, from fresh weights, the models in turn."""

import dataclasses
import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from compare.benchmark.candidate import BenchPlan, Candidate, Task, make_inputs, precisions
from compare.benchmark.measurement import (
    FIXED_SIZES,
    Axis,
    BenchmarkResult,
    Growth,
    Measurement,
    Scaling,
    figure,
    find_changes,
)
from compare.config.run import Run
from compare.models.registry import ResolvedModel, build
from compare.system.cpu import tune_cpu
from compare.system.device import autocast, device_name, set_numerics
from compare.system.measure import TimedRepeat, Workload, tensor_bytes, time_in_turn
from compare.system.plugins import code_version
from compare.training.loss import TranslationLoss
from data.symbols import SPECIALS

logger = logging.getLogger(__name__)

# Conditions of a benchmark: machine, amount of work and versions.


def machine(run: Run) -> dict[str, Any]:
    """Describe the device and the number of threads."""
    device = device_name(torch.device(run.train.device))
    return {"device": device, "threads": torch.get_num_threads()}


def conditions(run: Run, plan: BenchPlan) -> dict[str, Any]:
    """Collect the conditions that two comparable results must share, besides the work of each measurement."""
    return {**machine(run), "batch_tokens": run.train.batch_tokens, **plan.amounts}


def versions() -> dict[str, str]:
    """Collect the versions, in which two comparable results may differ."""
    return {"torch": torch.__version__, "python": platform.python_version(), "code": code_version()}


DEFAULT_PLAN = BenchPlan()


def planned_timings(runs: Sequence[Run], plan: BenchPlan = DEFAULT_PLAN) -> list[str]:
    """List what ``run_benchmark`` would time.

    Args:
        runs: as for ``run_benchmark``.
        plan: the phases.

    Returns:
        Model, phase and precision of each timing, such as "transformer beam fp32".
    """
    return [
        f"{run.label} {phase} {precision}"
        for phase in plan.phases
        for run in runs
        for precision in precisions(phase, run.train.precision)
    ]


def run_benchmark(
    runs: Sequence[Run], plan: BenchPlan = DEFAULT_PLAN, *, earlier: Sequence[Measurement] = ()
) -> BenchmarkResult:
    """Time all models in all phases of ``plan``.

    Args:
        runs: one run per model, with the same data, device and precision; see ``resolve_models``.
        plan: the phases and the amount of work of each.
        earlier: measurements under the same conditions, to compare with.

    Returns:
        The measurements with their conditions; ``render()`` gives a Markdown table.

    Raises:
        ValueError: bad data, or too few batches.
    """
    train = runs[0].train
    tune_cpu(batch_tokens=train.batch_tokens)
    device = torch.device(train.device)
    set_numerics(device, deterministic=train.deterministic)
    inputs = make_inputs(runs[0], plan)
    rows: list[Measurement] = []
    for phase in plan.phases:
        candidates = [Candidate(run, plan, inputs) for run in runs]
        tasks = [task for candidate in candidates for task in candidate.tasks(phase)]
        rows += time_tasks(tasks, device, plan.repeats, f"timing {phase}")
    return BenchmarkResult(
        rows=rows,
        changes=find_changes(rows, earlier) if earlier else [],
        conditions=conditions(runs[0], plan),
        versions=versions(),
    )


def time_tasks(tasks: Sequence[Task], device: torch.device, repeats: int, name: str) -> Iterator[Measurement]:
    """Time ``tasks`` in turn; return their measurements in the same order."""
    times: list[list[TimedRepeat]] = [[] for _ in tasks]
    for index, repeat in time_in_turn([task.work for task in tasks], device, repeats=repeats, name=name):
        times[index].append(repeat)
        timed = tasks[index].measurement
        headline = f"{figure(timed.headline(repeat.seconds))} {timed.unit}"
        logger.info(f"{timed.name}, round {len(times[index])} of {repeats}: {headline}")
    for task, costs in zip(tasks, times, strict=True):
        measured = task.measurement.with_repeats(costs)
        if measured.peak_memory_bytes is not None:
            held = tensor_bytes(*task.holders)
            measured = dataclasses.replace(measured, peak_memory_bytes=measured.peak_memory_bytes + held)
        yield measured


# Forward and backward pass of training on random ids: the workload whose growth is measured.


def training_pass(
    criterion: TranslationLoss,
    *,
    batch: int,
    length: int,
    vocabulary: int,
    device: torch.device,
    precision: str = "fp32",
) -> Workload:
    """Make the work of computing the loss and its gradients on one batch without padding.

    Args:
        criterion: the loss of a model on ``device``.
        batch: sentence pairs.
        length: tokens of each source and each target.
        vocabulary: size of both vocabularies; no special symbols are drawn.
        device: where the batch is.
        precision: fp32 or bf16.
    """
    src, tgt_in, tgt_out = torch.randint(len(SPECIALS), vocabulary, (3, batch, length), device=device)
    mask, lengths = torch.ones_like(src, dtype=torch.bool), torch.full((batch,), length)

    def work() -> None:
        criterion.zero_grad(set_to_none=True)
        with autocast(device, precision):
            loss = criterion(src, mask, tgt_in, tgt_out, mask, tgt_tokens=mask.numel(), src_lengths=lengths)
        loss.minimised.backward()

    return work


# Growth of training time with length, batch, width and vocabulary: one axis grows, the others stay
# fixed.


Sizes = Mapping[Axis, Sequence[int]]
SIZES: dict[Axis, Sequence[int]] = {
    "length": (8, 16, 32, 64),
    "batch": (4, 8, 16, 32),
    "width": (64, 128, 256, 512),
    "vocabulary": (1000, 2000, 4000, 8000),
}


def measure_growth(runs: Sequence[Run], sizes: Sizes = SIZES, *, repeats: int = 3) -> Scaling:
    """Time the training pass of each model on random ids along each axis; the models take turns.

    Args:
        runs: one run per model, with the same device and precision; the corpus is not read.
        sizes: values of each axis: length, batch, width or vocabulary.
        repeats: timed repeats, of which the median counts.

    Returns:
        Seconds of every model and size, with the exponent of the growth; ``render()`` gives tables.
    """
    tune_cpu()
    train = runs[0].train
    device, precision = torch.device(train.device), train.precision
    set_numerics(device, deterministic=train.deterministic)
    growths = []
    for axis, values in sizes.items():
        logger.info(f"{axis} {', '.join(map(str, values))}: {len(runs)} models, {repeats} repeats")
        torch.manual_seed(train.seed)
        works = [
            _pass(run.model, {**FIXED_SIZES, axis: value}, device, precision)
            for run in runs
            for value in values
        ]
        seconds: list[list[float]] = [[] for _ in works]
        for index, repeat in time_in_turn(works, device, repeats=repeats, name=f"timing growth with {axis}"):
            seconds[index].append(repeat.seconds)
        growths += [
            Growth(axis=axis, model=run.label, sizes=list(values), seconds=seconds[start:][: len(values)])
            for start, run in zip(range(0, len(works), len(values)), runs, strict=True)
        ]
    return Scaling(growths=growths, precision=precision, machine=machine(runs[0]), versions=versions())


def widened(model: ResolvedModel, width: int) -> ResolvedModel:
    """Set every width of a model to ``width``, and its feed-forward layers to four times that."""
    return model.override({name: 4 * width if name == "ffn_size" else width for name in model.widths()})


def _pass(
    settings: ResolvedModel, sizes: Mapping[Axis, int], device: torch.device, precision: str
) -> Workload:
    """Build a model of these sizes and make its training pass."""
    if "width" in sizes:
        settings = widened(settings, sizes["width"])
    vocabulary = sizes["vocabulary"]
    model = build(settings.architecture, vocabulary, vocabulary).to(device)
    return training_pass(
        TranslationLoss(model, label_smoothing=0.1).train(),
        batch=sizes["batch"],
        length=sizes["length"],
        vocabulary=vocabulary,
        device=device,
        precision=precision,
    )
