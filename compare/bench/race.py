"""Time every model of an experiment in every phase, from fresh weights, the models taking turns."""

from collections.abc import Callable, Iterator, Sequence

import torch

from compare.bench.against import changes
from compare.bench.conditions import conditions, versions
from compare.bench.contender import Contender, Job, precisions
from compare.bench.inputs import make_inputs
from compare.bench.plan import BenchPlan
from compare.bench.report import Report
from compare.bench.row import Row, figure
from compare.bench.yardstick import yardstick
from compare.config import Experiment
from compare.cpu import tune_cpu
from compare.machine import pick_device
from compare.models import resolve
from compare.precision import settled
from compare.throughput import Turn, take_turns

Say = Callable[[str], None]


def rehearse(experiment: Experiment, plan: BenchPlan, place: str = "config") -> list[str]:
    """What would be timed; fails on what is wrong with device or models."""
    train = settled(experiment).train
    pick_device(train.device)
    for row in experiment.models:
        resolve(row, place)
    return [
        f"{row.label} {phase} {precision}"
        for phase in plan.phases
        for row in experiment.models
        for precision in precisions(phase, train.precision)
    ]


def measure(
    experiment: Experiment, plan: BenchPlan, say: Say, *, earlier: Sequence[Row] = (), place: str = "config"
) -> Report:
    """Time all that ``plan`` says.

    Args:
        experiment: the models, their data, device and precision.
        plan: phases, and how much of each.
        say: told of every repeat.
        earlier: rows of an earlier result under the same conditions, to compare with.
        place: what to name in errors of the settings.

    Raises:
        ValueError: bad settings or data, or too few batches.
    """
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    experiment = settled(experiment)
    device = pick_device(experiment.train.device)
    blueprints = {row.label: resolve(row, place) for row in experiment.models}  # mistakes first, then work
    inputs = make_inputs(experiment, plan, say)
    rows: list[Row] = []
    for phase in plan.phases:
        contenders = [Contender(*item, experiment, plan, inputs, device) for item in blueprints.items()]
        rows += race([job for each in contenders for job in each.jobs(phase)], device, plan.repeats, say)
    rate, words = yardstick(device, experiment.train.precision)
    return Report(
        rows=rows,
        changes=changes(rows, earlier) if earlier else [],
        conditions=conditions(experiment, plan),
        versions=versions(),
        yardstick_flops_per_s=rate,
        yardstick=words,
    )


def race(jobs: Sequence[Job], device: torch.device, repeats: int, say: Say) -> Iterator[Row]:
    """The rows of ``jobs``, timed in turn."""
    turns: list[list[Turn]] = [[] for _ in jobs]
    for place, turn in take_turns([job.work for job in jobs], device, repeats=repeats):
        turns[place].append(turn)
        row = jobs[place].row
        say(f"{len(turns[place])}/{repeats} {row.name}: {figure(row.headline(turn.seconds))} {row.unit}")
    return (job.row.timed(taken) for job, taken in zip(jobs, turns, strict=True))
