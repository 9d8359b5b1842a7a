"""Timing of every model of an experiment in every phase, from fresh weights, the models in turn."""

import dataclasses
import logging
from collections.abc import Iterator, Sequence

import torch

from compare.benchmark.candidate import Candidate, Task, precisions
from compare.benchmark.conditions import conditions, versions
from compare.benchmark.inputs import make_inputs
from compare.benchmark.measurement import Measurement, figure
from compare.benchmark.plan import BenchPlan
from compare.benchmark.regressions import find_changes
from compare.benchmark.report import BenchmarkResult
from compare.config.run import Run
from compare.system.cpu import tune_cpu
from compare.system.memory import tensor_bytes
from compare.system.numerics import set_numerics
from compare.system.timing import TimedRepeat, time_in_turn

logger = logging.getLogger(__name__)

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
        rows += time_tasks(tasks, device, plan.repeats)
    return BenchmarkResult(
        rows=rows,
        changes=find_changes(rows, earlier) if earlier else [],
        conditions=conditions(runs[0], plan),
        versions=versions(),
    )


def time_tasks(tasks: Sequence[Task], device: torch.device, repeats: int) -> Iterator[Measurement]:
    """Time ``tasks`` in turn; return their measurements in the same order."""
    times: list[list[TimedRepeat]] = [[] for _ in tasks]
    for index, repeat in time_in_turn([task.work for task in tasks], device, repeats=repeats):
        times[index].append(repeat)
        timed = tasks[index].measurement
        headline = f"{figure(timed.headline(repeat.seconds))} {timed.unit}"
        logger.info(f"{len(times[index])}/{repeats} {timed.name}: {headline}")
    for task, costs in zip(tasks, times, strict=True):
        measured = task.measurement.with_repeats(costs)
        if measured.peak_memory_bytes is not None:
            held = tensor_bytes(*task.holders)
            measured = dataclasses.replace(measured, peak_memory_bytes=measured.peak_memory_bytes + held)
        yield measured
