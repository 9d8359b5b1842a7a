"""Run an experiment: read settings, prepare data, train, decode and score each model, time all of them."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from compare.config.resolve import Run, resolve_models
from compare.config.sections import Experiment, SystemConfig
from compare.experiment.compute_result import ensure_columns_of_metrics
from compare.experiment.estimate import RunEstimate, estimate_runs, log_duration
from compare.experiment.open_runs import (
    PlannedRun,
    begin_run,
    locked_for_setup,
    open_registry,
    open_run,
    open_runs,
)
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run_model import RunModel, finish_run, run_model
from compare.experiment.start import ensure_initial_weights_fit, smaller_budgets, trunk_updates
from compare.experiment.timing import forget_timings, results_to_time, time_all, timing_seconds
from compare.models.registry import ensure_fits_memory
from compare.results.store import (
    REGISTRY,
    Registry,
    Result,
    check_output_folder,
    read_result,
    read_results,
)
from compare.scoring import make_bleu
from compare.system.device import tune_cpu
from compare.system.log import Reporter, log_to_file
from compare.system.messages import abbreviate, did_you_mean
from compare.system.plugins import code_version
from compare.system.processes import join_processes
from data.files import remove_leftovers
from data.locks import LOCK, Locked, lock_folder
from data.vocabulary import SPECIALS

if TYPE_CHECKING:
    from compare.experiment.external_systems import ExternalRow
    from compare.experiment.launch import Launch

logger = logging.getLogger(__name__)


def run_experiment(
    experiment: Experiment,
    folder: str | Path,
    reporter: Reporter | None = None,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launch: "Launch | None" = None,
    tests: bool = True,
    timing: bool = True,
    time_again: bool = False,
) -> list[Result]:
    """Finish every run of ``experiment`` in ``folder``.

    Runs that have ended stay as they are; one that was stopped continues from its last saved state. Several
    processes may work in one folder: a run that another process is working on is left to it.

    Processes that torchrun has started together train and translate each run together: process 0 does
    everything else, and the others return no results.

    Args:
        experiment: the models and their shared settings, as read by ``load_experiment``.
        folder: where the runs are kept, such as runs/demo; created where it is missing.
        reporter: shows the progress of training.
        seeds: each model is trained once from each seed; by default from those of the file.
        only: labels of the models that this call trains, in which * stands for any text; by default all. A
            budget is matched over all models in any case.
        context: the file that error messages name.
        launch: processes that share the runs; by default this one finishes one run after the other.
        tests: read, decode and score the test sets, and time the models; without, only validation judges.
        timing: time all models in turn once all runs have ended.
        time_again: time all models again, also if they have been timed.

    Returns:
        The result of every run that was asked for, in order; ``read_results(folder)`` gives those of earlier
        calls and of external systems too.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
        Interrupted: a signal arrived; everything is saved.
        ConnectionError: another process that torchrun has started has ended.
    """
    folder, reporter, timing = Path(folder), reporter or Reporter(), timing and tests
    seeds = seeds or experiment.seeds
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    code_version()  # read now: sources may be edited during a long run

    def finish_all(train: RunModel) -> list[Result]:
        models = plan_models(experiment, folder, context, launch)
        with locked_for_setup(folder):
            prepare = cache(partial(prepare_data, models[0], folder / "encoded", tests=tests))
            runs = open_runs(match_models(models, prepare), folder, seeds, only)
            systems = experiment.systems if tests else ()
            if not (time_again or systems) and _is_finished(folder, runs, timing=timing):
                return [read_result(run.folder) for run in runs]
            prepared = prepare()
            registry, rows = check_with_data(runs, prepared, folder, systems)
            registry.write(folder)
            for row in rows:
                row.write(prepared)
            if time_again:
                forget_timings(folder)
        reporter.expect(*_expected_work(runs, prepared, timing=timing))
        same = partial(run_experiment, folder=folder.resolve(), seeds=seeds, only=only)
        call = partial(same, context=context, tests=tests)
        if timing and launch is None:
            log_duration(runs, prepared)
        if launch is None or not launch.share_runs(call, experiment, runs, reporter, timing=timing):
            run_each(runs, prepared, reporter, train)
            if timing:
                time_all(folder, models[0], prepared)
        return [read_result(run.folder) for run in runs]

    with join_processes() as processes:
        if processes.size == 1:
            return finish_all(run_model)
        from compare.experiment.launch import train_together

        return train_together(processes, launch, finish_all)


def estimate_experiment(
    experiment: Experiment,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launch: "Launch | None" = None,
    tests: bool = True,
) -> list[RunEstimate]:
    """Check what ``run_experiment`` would do, with its arguments and errors, without writing any file."""
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
        return estimate_runs(runs, prepared)


def plan_models(experiment: Experiment, folder: Path, context: str, launch: "Launch | None") -> list[Run]:
    """Decide the settings of each model, and find mistakes that need no data."""
    models = (launch.resolve_models if launch else resolve_models)(experiment, context)
    if models[0].budget.match != "none":
        from compare.experiment.budget import find_reference

        find_reference(models)
    make_bleu(models[0].scoring.tokenize)  # raises if the tokenizer's package is missing
    ensure_columns_of_metrics()
    for run in models:
        if run.model.plugin_part() is not None:
            from compare.experiment.verify import ensure_verified

            ensure_verified(run)
    _ensure_memory(models, (len(SPECIALS) + 1,) * 2)  # the smallest vocabularies, while others are unknown
    check_output_folder(folder)
    labels = {entry.label for entry in models} | {entry.label for entry in experiment.systems}
    if (folder / REGISTRY).is_file():
        labels |= {result.label for result in read_results(folder)}  # raises if a result is damaged
    scoring = models[0].scoring
    for label in filter(None, chain([scoring.baseline], *scoring.pairs)):
        if label not in labels:
            setting = "baseline" if label == scoring.baseline else "pairs"
            raise ValueError(
                f"{context}: scoring.{setting}: {abbreviate(label)} is not a model of the experiment; "
                f"{did_you_mean(label, sorted(labels))}"
            )
    return models


def match_models(models: list[Run], prepare: Callable[[], PreparedData]) -> list[Run]:
    """Match the widths of the models to the budget, if there is one."""
    if models[0].budget.match == "none":
        return models
    from compare.experiment.budget import match_budget

    return match_budget(models, prepare())


def check_with_data(
    runs: Sequence[PlannedRun], prepared: PreparedData, folder: Path, systems: Sequence[SystemConfig]
) -> "tuple[Registry, list[ExternalRow]]":
    """Find mistakes that need the data; nothing is written.

    Returns:
        The content of experiment.json, and the rows of external systems.
    """
    _ensure_memory([run.run for run in runs], prepared.vocabulary_sizes)
    if runs[0].run.train.init_from is not None:
        ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
    rows = []
    if systems:
        from compare.experiment.external_systems import read_system

        rows = [read_system(system, runs[0].run, prepared.corpus, folder) for system in systems]
    return open_registry(folder, prepared, [*runs, *rows]), rows


def _ensure_memory(models: Sequence[Run], vocabulary_sizes: tuple[int, int]) -> None:
    for run in models:
        architecture, context, ema = run.model.architecture, f"models.{run.label}", run.train.ema > 0
        ensure_fits_memory(architecture, *vocabulary_sizes, context=context, ema=ema)


def _is_finished(folder: Path, runs: Sequence[PlannedRun], *, timing: bool) -> bool:
    """Return whether nothing is left to do; remove leftovers of a process that was killed at its end."""
    if not all(run.has_ended for run in runs) or (timing and results_to_time(folder)):
        return False
    logger.info(f"{folder}: all {len(runs)} runs have ended; delete the folder of a run to repeat it")
    for run in runs:
        if (run.folder / LOCK).exists():
            with suppress(Locked), lock_folder(run.folder):
                remove_leftovers(run.folder)
    return True


TIMED_SENTENCES = 5
"""Sentences of the latency that take about as long as an update, by the published results."""


def _expected_work(
    runs: Sequence[PlannedRun], prepared: PreparedData, *, timing: bool
) -> tuple[dict[str, tuple[int, int, float]], float, float]:
    """Return first and last update and FLOPs of runs that have not ended; FLOPs and seconds of the timing."""
    expected, flops, first = {}, {}, trunk_updates(runs)
    for run in runs:
        passes = run.run.regularization.passes
        flops[run.run.label] = prepared.training_flops(run.run.model.architecture, passes)
        if not run.has_ended:
            expected[run.name] = (first[run.name], run.run.train.max_updates, flops[run.run.label])
    if not timing:
        return expected, 0.0, 0.0
    bench = runs[0].run.bench
    updates = bench.repeats * (bench.updates + bench.latency_sentences / TIMED_SENTENCES)
    return expected, updates * sum(flops.values()), len(flops) * timing_seconds(runs[0].run)


def run_each(runs: Sequence[PlannedRun], prepared: PreparedData, reporter: Reporter, train: RunModel) -> None:
    """Finish each run that has not ended, one after the other; if one fails, the others still run.

    Raises:
        ValueError: a run could not be finished, such as one with damaged files. So does OSError.
        ConnectionError: another process of torchrun has ended; no other run was begun.
    """
    errors: list[ValueError | OSError] = []
    for number, planned in enumerate(runs, start=1):
        position = f"[{number}/{len(runs)}] {planned.name}"
        try:
            with ExitStack() as locks:
                for folder in (*smaller_budgets(planned), planned):  # another process may train their trunk
                    locks.enter_context(lock_folder(folder.folder))
                run = open_run(planned.run, planned.folder.parent)  # another process may have worked on it
                if run.has_ended:
                    logger.info(f"{position}: already finished")
                    continue
                logger.info(f"{position}: start")
                for warning in run.run.warnings:
                    logger.warning(f"{run.name}: {warning}")
                begin_run(run, prepared)
                with log_to_file(run.folder / "log.txt"):
                    finish_run(run, prepared.for_seed(run.run.train.seed), reporter, train)
        except Locked as locked:
            logger.warning(f"{position}: left out: {locked}")
        except ConnectionError:  # torchrun's other processes have ended
            raise
        except (ValueError, OSError) as error:
            errors.append(error)
            if len(errors) > 1 or number < len(runs):  # the first is raised, so printed, at the end
                logger.log(logging.ERROR if len(errors) > 1 else logging.INFO, f"{position}: {error}")
    if errors:
        raise errors[0]
