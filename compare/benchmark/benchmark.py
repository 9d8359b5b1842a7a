"""Timing of every model of an experiment in every phase, from fresh weights, the models in turn."""

from collections.abc import Callable, Iterator, Sequence

import torch

from compare.benchmark.candidate import Candidate, Task, precisions
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

Say = Callable[[str], None]


def planned_timings(experiment: Experiment, plan: BenchPlan, place: str = "config") -> list[str]:
    """List what a benchmark would time.

    Raises:
        ValueError: the device or a model cannot be used.
    """
    train = resolve_precision(experiment).train
    pick_device(train.device)
    for model in experiment.models:
        resolve_model(model, place)
    return [
        f"{model.label} {phase} {precision}"
        for phase in plan.phases
        for model in experiment.models
        for precision in precisions(phase, train.precision)
    ]


def run_benchmark(
    experiment: Experiment,
    plan: BenchPlan,
    say: Say,
    *,
    earlier: Sequence[Measurement] = (),
    place: str = "config",
) -> BenchmarkResult:
    """Time all models in all phases of ``plan``.

    Args:
        experiment: the models, their data, device and precision.
        plan: the phases and the amount of work of each.
        say: called with a line for every repeat.
        earlier: measurements under the same conditions, to compare with.
        place: name of the config in error messages.

    Raises:
        ValueError: bad settings or data, or too few batches.
    """
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    experiment = resolve_precision(experiment)
    device = pick_device(experiment.train.device)
    resolved = {model.label: resolve_model(model, place) for model in experiment.models}  # check all first
    inputs = make_inputs(experiment, plan, say)
    rows: list[Measurement] = []
    for phase in plan.phases:
        candidates = [Candidate(*item, experiment, plan, inputs, device) for item in resolved.items()]
        tasks = [task for candidate in candidates for task in candidate.tasks(phase)]
        rows += time_tasks(tasks, device, plan.repeats, say)
    peak, description = peak_flops(device, experiment.train.precision)
    return BenchmarkResult(
        rows=rows,
        changes=find_changes(rows, earlier) if earlier else [],
        conditions=conditions(experiment, plan),
        versions=versions(),
        yardstick_flops_per_s=peak,
        yardstick=description,
    )


def time_tasks(tasks: Sequence[Task], device: torch.device, repeats: int, say: Say) -> Iterator[Measurement]:
    """Time ``tasks`` in turn; return their measurements in the same order."""
    times: list[list[TimedRepeat]] = [[] for _ in tasks]
    for index, repeat in time_in_turn([task.work for task in tasks], device, repeats=repeats):
        times[index].append(repeat)
        timed = tasks[index].measurement
        headline = f"{figure(timed.headline(repeat.seconds))} {timed.unit}"
        say(f"{len(times[index])}/{repeats} {timed.name}: {headline}")
    return (task.measurement.with_repeats(costs) for task, costs in zip(tasks, times, strict=True))
