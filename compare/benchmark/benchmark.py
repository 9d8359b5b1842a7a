"""Time every model of an experiment in every phase, from fresh weights, the models taking turns."""

import logging
from collections.abc import Iterator, Sequence

import torch

from compare.benchmark.candidate import Candidate, Job, precisions
from compare.benchmark.conditions import conditions, versions
from compare.benchmark.inputs import make_inputs
from compare.benchmark.measurement import Measurement, figure
from compare.benchmark.plan import BenchPlan
from compare.benchmark.regressions import find_changes
from compare.benchmark.report import BenchmarkResult
from compare.config.resolve_model import resolve_model
from compare.config.sections import Experiment
from compare.experiment.resolve import resolve_precision
from compare.system.cpu import tune_cpu
from compare.system.device import pick_device
from compare.system.peak_flops import peak_flops
from compare.system.timing import TimedRepeat, time_in_turn

logger = logging.getLogger(__name__)


def planned_timings(experiment: Experiment, plan: BenchPlan, place: str = "config") -> list[str]:
    """What would be timed; fails on what is wrong with device or models."""
    train = resolve_precision(experiment).train
    pick_device(train.device)
    for row in experiment.models:
        resolve_model(row, place)
    return [
        f"{row.label} {phase} {precision}"
        for phase in plan.phases
        for row in experiment.models
        for precision in precisions(phase, train.precision)
    ]


def run_benchmark(
    experiment: Experiment,
    plan: BenchPlan,
    *,
    earlier: Sequence[Measurement] = (),
    place: str = "config",
) -> BenchmarkResult:
    """Time all that ``plan`` says.

    Args:
        experiment: the models, their data, device and precision.
        plan: phases, and how much of each.
        earlier: rows of an earlier result under the same conditions, to compare with.
        place: what to name in errors of the settings.

    Raises:
        ValueError: bad settings or data, or too few batches.
    """
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    experiment = resolve_precision(experiment)
    device = pick_device(experiment.train.device)
    resolved = {
        row.label: resolve_model(row, place) for row in experiment.models
    }  # mistakes first, then work
    inputs = make_inputs(experiment, plan)
    rows: list[Measurement] = []
    for phase in plan.phases:
        candidates = [Candidate(*item, experiment, plan, inputs, device) for item in resolved.items()]
        rows += time_jobs([job for each in candidates for job in each.jobs(phase)], device, plan.repeats)
    rate, words = peak_flops(device, experiment.train.precision)
    return BenchmarkResult(
        rows=rows,
        changes=find_changes(rows, earlier) if earlier else [],
        conditions=conditions(experiment, plan),
        versions=versions(),
        yardstick_flops_per_s=rate,
        yardstick=words,
    )


def time_jobs(jobs: Sequence[Job], device: torch.device, repeats: int) -> Iterator[Measurement]:
    """The rows of ``jobs``, timed in turn."""
    turns: list[list[TimedRepeat]] = [[] for _ in jobs]
    for place, turn in time_in_turn([job.work for job in jobs], device, repeats=repeats):
        turns[place].append(turn)
        row = jobs[place].row
        logger.info(
            f"{len(turns[place])}/{repeats} {row.name}: {figure(row.headline(turn.seconds))} {row.unit}"
        )
    return (job.row.timed(taken) for job, taken in zip(jobs, turns, strict=True))
