"""Time every model of an experiment in every phase, from fresh weights, the models taking turns."""

from collections.abc import Callable, Iterator, Sequence

import torch

from compare.benchmark.candidate import Candidate, Job, precisions
from compare.benchmark.conditions import conditions, versions
from compare.benchmark.inputs import make_inputs
from compare.benchmark.measurement import Measurement, figure
from compare.benchmark.plan import BenchPlan
from compare.benchmark.regressions import find_changes
from compare.benchmark.report import BenchmarkResult
from compare.config.run import Run
from compare.system.cpu import tune_cpu
from compare.system.peak_flops import peak_flops
from compare.system.timing import TimedRepeat, time_in_turn

Say = Callable[[str], None]


def planned_timings(runs: Sequence[Run], plan: BenchPlan) -> list[str]:
    """Name everything that ``run_benchmark`` would time: model, phase and precision."""
    return [
        f"{run.label} {phase} {precision}"
        for phase in plan.phases
        for run in runs
        for precision in precisions(phase, run.train.precision)
    ]


def run_benchmark(
    runs: Sequence[Run], plan: BenchPlan, say: Say, *, earlier: Sequence[Measurement] = ()
) -> BenchmarkResult:
    """Time every model in every phase of ``plan``.

    Args:
        runs: one run per model, with equal data, device and precision.
        plan: phases, and how much of each.
        say: told of every repeat.
        earlier: measurements of an earlier result under the same conditions, to compare with.

    Raises:
        ValueError: bad data, or too few batches.
    """
    train = runs[0].train
    tune_cpu(batch_tokens=train.batch_tokens)
    device = torch.device(train.device)
    inputs = make_inputs(runs[0], plan)
    rows: list[Measurement] = []
    for phase in plan.phases:
        candidates = [Candidate(run, plan, inputs) for run in runs]
        rows += time_jobs([job for each in candidates for job in each.jobs(phase)], device, plan.repeats, say)
    rate, words = peak_flops(device, train.precision)
    return BenchmarkResult(
        rows=rows,
        changes=find_changes(rows, earlier) if earlier else [],
        conditions=conditions(runs[0], plan),
        versions=versions(),
        yardstick_flops_per_s=rate,
        yardstick=words,
    )


def time_jobs(jobs: Sequence[Job], device: torch.device, repeats: int, say: Say) -> Iterator[Measurement]:
    """The rows of ``jobs``, timed in turn."""
    turns: list[list[TimedRepeat]] = [[] for _ in jobs]
    for place, turn in time_in_turn([job.work for job in jobs], device, repeats=repeats):
        turns[place].append(turn)
        row = jobs[place].row
        say(f"{len(turns[place])}/{repeats} {row.name}: {figure(row.headline(turn.seconds))} {row.unit}")
    return (job.row.timed(taken) for job, taken in zip(jobs, turns, strict=True))
