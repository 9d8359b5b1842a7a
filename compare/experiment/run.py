"""Run an experiment: read settings, prepare data, train, decode and score each model, time all of them.

An ``Experiment`` becomes ``Run`` objects in three steps, each done once: ``resolve_models`` decides the
settings of every model, the data are prepared, and ``match_budget`` decides widths.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compare.config.resolve import Run, resolve_models
from compare.config.sections import Experiment
from compare.experiment.compute_result import ensure_columns_of_metrics
from compare.experiment.external_systems import add_row, external_run, read_translations
from compare.experiment.folder import (
    begin_experiment,
    begin_run,
    ensure_initial_weights_fit,
    find_shorter,
    has_ended,
    locked_for_setup,
    open_registry,
    request_runs,
)
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run_model import finish_run
from compare.experiment.timing import forget_timings, results_to_time, time_all, timing_seconds
from compare.models.registry import ensure_fits_memory
from compare.results.run_folder import RunFolder
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
from compare.system.locks import LOCK, Locked, lock_folder
from compare.system.log import Reporter, log_to_file
from compare.system.messages import abbreviate, did_you_mean
from compare.system.plugins import code_version
from compare.system.processes import SINGLE, Processes, join_processes
from data.files import remove_leftovers
from data.vocabulary import SPECIALS

if TYPE_CHECKING:
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

    Runs that have ended stay as they are; one that was stopped continues from its last saved state, and all
    continue if ``train.max_updates`` has grown (see ``find_shorter``). Several processes may work in one
    folder: a run that another process is working on is left to it.

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
    code_version()  # of the sources as they are now: they may be edited during a long run
    with join_processes() as processes:
        if launch is not None and processes.size > 1:
            raise ValueError("torchrun starts processes, and so do --jobs and --slurm: use one of them")
        if not processes.is_main:
            from compare.experiment.launch import take_part

            take_part(processes)
            return []
        try:
            models = plan_models(experiment, folder, context, launch)
            runs = request_runs(models, folder, seeds, only)
            systems = experiment.systems if tests else ()
            if not (time_again or systems) and _is_finished(folder, runs, timing=timing):
                return [read_result(run.folder) for run in runs]
            with locked_for_setup(folder):
                runs, prepared, registry = prepare_runs(
                    models, folder, folder / "encoded", seeds, only, tests
                )
                task, corpus = models[0].task, prepared.corpus
                translations = [read_translations(system, corpus, task=task) for system in systems]
                rows = [external_run(system, runs[0].run, folder) for system in systems]
                begin_experiment(folder, registry, runs, rows)
                for row, lines in zip(rows, translations, strict=True):
                    add_row(row, lines, prepared)
                if time_again:
                    forget_timings(folder)
            reporter.expect(*_expected_work(runs, prepared, timing=timing))
            if launch is not None:
                same = partial(
                    run_experiment, folder=folder.resolve(), seeds=seeds, only=only, context=context
                )
                launch.share_runs(partial(same, tests=tests), experiment, runs, reporter, timing=timing)
            if launch is None or launch.slurm is None:  # jobs of a cluster have done the rest, too
                run_each(runs, prepared, reporter, processes)
                if timing:
                    time_all(folder, models[0], prepared)
            return [read_result(run.folder) for run in runs]
        finally:
            processes.dismiss()


def plan_models(experiment: Experiment, folder: Path, context: str, launch: "Launch | None") -> list[Run]:
    """Decide the settings of each model, and find mistakes that need no data.

    These are the budget's reference, parts of plug-ins that break a rule, models too large for this machine,
    a folder that cannot be used, and a baseline that no model is.
    """
    on_nodes = launch is not None and launch.slurm is not None
    if launch is not None:
        experiment = launch.for_nodes(experiment, context)
    models = resolve_models(experiment, context, other_machine=on_nodes)
    if models[0].budget.match != "none":
        from compare.experiment.budget import find_reference

        find_reference(models)
    make_bleu(models[0].scoring.tokenize)  # which may lack a package
    ensure_columns_of_metrics()
    for run in models:
        if run.model.plugin_part() is not None:
            from compare.experiment.verify import ensure_verified

            ensure_verified(run)
    _ensure_memory(models, (len(SPECIALS) + 1,) * 2)  # the smallest vocabularies, while others are unknown
    check_output_folder(folder)
    labels = {each.label for each in models} | {each.label for each in experiment.systems}
    if (folder / REGISTRY).is_file():
        labels |= {result.label for result in read_results(folder)}  # which names what is damaged
    if (baseline := models[0].scoring.baseline) and baseline not in labels:
        raise ValueError(
            f"{context}: scoring.baseline = {abbreviate(baseline)} is no model of the experiment; "
            f"{did_you_mean(baseline, sorted(labels))}"
        )
    return models


def prepare_runs(
    models: Sequence[Run],
    folder: Path,
    encoded: Path,
    seeds: Sequence[int],
    only: Sequence[str],
    tests: bool,
) -> tuple[list[RunFolder], PreparedData, Registry]:
    """Prepare the data, match the budget, and find mistakes that need the data.

    Args:
        models: one run per model.
        folder: of the experiment, in which nothing is written.
        encoded: cache of the encoded data.
        seeds: of each model.
        only: labels of the models that are asked for.
        tests: read the test sets.

    Returns:
        The runs that are asked for, their data, and the content of experiment.json.
    """
    prepared = prepare_data(models[0], encoded, tests=tests)
    registry = open_registry(folder, prepared)
    if models[0].budget.match != "none":
        from compare.experiment.budget import match_budget

        models = match_budget(models, prepared)
    _ensure_memory(models, prepared.vocabulary_sizes)
    runs = request_runs(models, folder, seeds, only)
    ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
    return runs, prepared, registry


def _ensure_memory(models: Sequence[Run], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if this machine's memory cannot hold the training of one of the models."""
    for run in models:
        architecture, context, ema = run.model.architecture, f"models.{run.label}", run.train.ema > 0
        ensure_fits_memory(architecture, *vocabulary_sizes, context=context, ema=ema)


def _is_finished(folder: Path, runs: Sequence[RunFolder], *, timing: bool) -> bool:
    """Return whether nothing is left to do; remove what a process has left that was killed at its end.

    Of runs with a matched budget this is not known before they are matched.
    """
    if runs[0].run.budget.match != "none" or find_shorter(runs) or not all(map(has_ended, runs)):
        return False
    if timing and results_to_time(folder):
        return False
    logger.info(f"{folder}: all {len(runs)} runs have ended; delete the folder of a run to repeat it")
    for place in (folder, *(run.folder for run in runs)):
        if (place / LOCK).exists():
            with suppress(Locked), lock_folder(place):
                remove_leftovers(place)
    return True


TIMED_SENTENCES = 5
"""Sentences of the latency that take about as long as an update; training, searches and latency of most of
the published results took as long together as ``_expected_work`` says, within a factor of two."""


def _expected_work(
    runs: Sequence[RunFolder], prepared: PreparedData, *, timing: bool
) -> tuple[dict[str, tuple[int, float]], float, float]:
    """Return updates and FLOPs of each run that has not ended; FLOPs and seconds of the timing at the end."""
    expected, flops = {}, {}
    for run in runs:
        passes = run.run.regularization.passes
        flops[run.run.label] = prepared.training_flops(run.run.model.architecture, passes)
        with suppress(ValueError):  # a damaged result is reported when its turn comes
            if not has_ended(run):
                expected[run.name] = (run.run.train.max_updates, flops[run.run.label])
    if not timing:
        return expected, 0.0, 0.0
    bench = runs[0].run.bench
    updates = bench.repeats * (bench.updates + bench.latency_sentences / TIMED_SENTENCES)
    return expected, updates * sum(flops.values()), len(flops) * timing_seconds(runs[0].run)


def run_each(
    runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter, processes: Processes = SINGLE
) -> None:
    """Finish each run that has not ended, one after the other; if one fails, the others still run.

    Args:
        runs: the runs; one that another process works on is left to it.
        prepared: their data.
        reporter: shows the progress of training.
        processes: those that train and translate together; this is process 0 of them.

    Raises:
        ValueError: a run could not be finished, such as one with damaged files; all others have been run.
        OSError: likewise, such as a file that cannot be read.
        ConnectionError: another process that torchrun has started has ended; no other run was begun.
    """
    errors: list[ValueError | OSError] = []
    for number, run in enumerate(runs, start=1):
        position = f"[{number}/{len(runs)}] {run.name}"
        try:
            with lock_folder(run.folder):
                if has_ended(run):
                    logger.info(f"{position}: already finished")
                    continue
                logger.info(f"{position}: start")
                for warning in run.run.warnings:
                    logger.warning(f"{run.name}: {warning}")
                begin_run(run, prepared)
                with log_to_file(run.folder / "log.txt"):
                    finish_run(run, prepared.for_seed(run.run.train.seed), reporter, processes)
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
