"""Run an experiment: read settings, prepare data, train, decode and score each model, time all of them.

An ``Experiment`` becomes ``Run`` objects in three steps, each done once: ``resolve_models`` decides the
settings of every model, the data are prepared, and ``match_budget`` decides widths or updates.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from compare.config.run import Run, resolve_models
from compare.config.sections import Experiment
from compare.experiment.budget import calibrate, find_reference, match_budget
from compare.experiment.compute_result import compute_figures, training_flops, unfinished_result
from compare.experiment.evaluation import evaluate_run
from compare.experiment.folder import (
    begin_experiment,
    begin_run,
    find_shorter,
    locked_for_setup,
    open_registry,
    request_runs,
)
from compare.experiment.launch import Launch
from compare.experiment.prepare import (
    PreparedData,
    ensure_initial_weights_fit,
    ensure_models_fit,
    prepare_data,
)
from compare.experiment.timing import forget_timings, results_to_time, time_all
from compare.experiment.trainers import announced, build_trainer, take_part
from compare.results.records import RawSpeed
from compare.results.run_folder import RunFolder
from compare.results.store import (
    REGISTRY,
    Result,
    check_output_folder,
    read_result,
    read_results,
    save_result,
    write_json_lines,
    write_record,
)
from compare.system.cpu import tune_cpu
from compare.system.device import this_machine
from compare.system.distributed import SINGLE, Processes, join_processes
from compare.system.log import Reporter, log_to_file
from compare.system.measure import is_out_of_memory, peak_memory_bytes, reset_peak_memory
from compare.system.messages import first_line
from compare.system.plugins import code_version
from compare.system.signals import LOCK, Locked, lock_folder
from compare.training.trainer import TrainingDiverged
from data.files import remove_leftovers
from data.vocabulary import SPECIALS

logger = logging.getLogger(__name__)


def run_experiment(
    experiment: Experiment,
    folder: str | Path,
    reporter: Reporter | None = None,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launch: Launch | None = None,
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
        reporter: shows the progress of training; by default log messages do.
        seeds: each model is trained once from each seed; by default from ``[train] seed`` alone.
        only: labels of the models that this call trains, in which * stands for any text; by default all. A
            budget is matched over all models in any case.
        context: the file that error messages name.
        launch: processes that share the runs; by default this one finishes one run after the other.
        tests: read, decode and score the test sets, and time the models; without, only validation judges.
        timing: time all models in turn once all runs have ended.
        time_again: time all models again, also if they have been timed.

    Returns:
        The result of every run that was asked for, in order; ``read_results(folder)`` gives those of earlier
        calls too.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
        Interrupted: a signal arrived; everything is saved.
        ConnectionError: another process that torchrun has started has ended.
    """
    folder, reporter, timing = Path(folder), reporter or Reporter(quiet=True), timing and tests
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    code_version()  # of the sources as they are now: they may be edited during a long run
    with join_processes() as processes:
        if launch is not None and processes.size > 1:
            raise ValueError("torchrun starts processes, and so do --jobs and --slurm: use one of them")
        if not processes.is_main:
            take_part(processes)
            return []
        try:
            models = plan_models(experiment, folder, context, launch)
            runs = request_runs(models, folder, seeds, only)
            if not time_again and _is_finished(folder, runs, timing=timing):
                return [read_result(run.folder) for run in runs]
            with locked_for_setup(folder):
                prepared = prepare_data(models[0], folder / "encoded", tests=tests)
                registry = open_registry(folder, prepared)
                if experiment.budget.match == "time":
                    calibrate(models, prepared, registry, alone=processes.size == 1)
                models = match_budget(models, prepared, registry.seconds_per_update)
                runs = request_runs(models, folder, seeds, only)
                ensure_models_fit(models, prepared.vocabulary_sizes)
                ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
                begin_experiment(folder, registry, runs, prepared)
                prepared.keep_hash()
                if time_again:
                    forget_timings(folder)
            if launch is not None:
                decided = models[0].train
                train = replace(experiment.train, device=decided.device, precision=decided.precision)
                experiment = replace(experiment, train=train)
                same = partial(run_experiment, experiment, folder.resolve(), seeds=seeds, only=only)
                same = partial(same, context=context, tests=tests)
                _announce(runs, prepared, reporter)
                if left := [run for run in runs if not has_ended(run)]:
                    launch.run(partial(same, timing=False), folder, left, reporter)
                if launch.slurm is not None:  # one more job does what this process does otherwise
                    if timing and results_to_time(folder):
                        launch.run(same, folder, [], reporter)
                    return [read_result(run.folder) for run in runs]
            run_each(runs, prepared, reporter, processes)
            if timing:
                time_all(folder, models[0], prepared)
            return [read_result(run.folder) for run in runs]
        finally:
            processes.dismiss()


def plan_models(experiment: Experiment, folder: Path, context: str, launch: Launch | None) -> list[Run]:
    """Decide the settings of each model, and find mistakes that need no data.

    These are the budget's reference, models too large for this machine, and a folder that cannot be used.
    """
    on_nodes = launch is not None and launch.slurm is not None
    if launch is not None:
        experiment = launch.for_nodes(experiment, context)
    models = resolve_models(experiment, context, other_machine=on_nodes)
    find_reference(models)
    ensure_models_fit(models, (len(SPECIALS) + 1,) * 2)  # the smallest vocabularies, while others are unknown
    check_output_folder(folder)
    if (folder / REGISTRY).is_file():
        read_results(folder)  # names what is damaged
    return models


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


def has_ended(run: RunFolder) -> bool:
    """Return whether a run is done or has failed."""
    return run.folder.is_dir() and read_result(run.folder).status != "unfinished"


def _announce(runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
    """Tell ``reporter`` the updates and FLOPs of all runs that have not ended."""
    expected = {}
    for run in runs:
        with suppress(ValueError):  # a damaged result is reported when its turn comes
            if not has_ended(run):
                settings, passes = run.run, run.run.regularization.passes
                flops = training_flops(settings.model.architecture, prepared=prepared, passes=passes)
                expected[run.name] = (settings.train.max_updates, flops)
    reporter.expect(expected)


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
    _announce(runs, prepared, reporter)
    for number, run in enumerate(runs, start=1):
        position = f"[{number}/{len(runs)}] {run.name}"
        try:
            with lock_folder(run.folder):
                if has_ended(run):
                    logger.info(f"{position}: already finished")
                    continue
                logger.info(f"{position}: start")
                begin_run(run, prepared)
                with log_to_file(run.folder / "log.txt"):
                    finish_run(run, prepared.for_seed(run.run.train.seed), reporter, processes)
                with lock_folder(run.folder.parent, wait=True):
                    write_json_lines(run.folder.parent)
        except Locked as locked:
            logger.warning(f"{position}: left out: {locked}")
        except ConnectionError:  # torchrun's other processes have ended
            raise
        except (ValueError, OSError) as error:
            errors.append(error)
            if len(errors) > 1 or number < len(runs):
                logger.error(f"{position}: {error}")
    if errors:
        raise errors[0]


def finish_run(
    run: RunFolder, prepared: PreparedData, reporter: Reporter, processes: Processes = SINGLE
) -> Result:
    """Finish one run and write its result, which it returns; divergence and lack of memory are results too.

    Args:
        run: the run, whose folder this process has locked.
        prepared: the data, with the batches of the run's seed.
        reporter: shows the progress of training.
        processes: those that train and translate together; this is process 0 of them.

    Raises:
        ValueError: a file of the run is damaged.
        Interrupted: a signal arrived; the state is saved.
        ConnectionError: another process has ended.
    """
    try:
        with announced(run, prepared, processes):
            result = run_one(run, prepared, reporter, processes)
    except TrainingDiverged as error:
        logger.error(f"{run.name}: failed: {error}")
        result = replace(unfinished_result(run, prepared), status="failed", reason=str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = f"out of memory: {first_line(error)}"
        logger.error(f"{run.name}: {reason}; run the same command to try again")
        result = replace(unfinished_result(run, prepared), reason=reason)
    save_result(run.folder, result)
    return result


def run_one(folder: RunFolder, prepared: PreparedData, reporter: Reporter, processes: Processes) -> Result:
    """Train one model, from the start or from where it was stopped, and test the chosen weights."""
    run, was_trained = folder.run, folder.weights.is_file()
    reset_peak_memory(torch.device(run.train.device))
    with reporter.training(folder.name, run.train.max_updates) as report:
        trainer, translator = build_trainer(folder, prepared, report, processes)
        trainer.run()

    def test() -> Result:
        """Test the weights, in process 0, for whose searches the others wait."""
        seconds = evaluate_run(folder, translator, prepared.corpus)
        # That of training is unknown where an earlier process has trained the model.
        peak = None if was_trained else peak_memory_bytes(translator.device)
        machine = this_machine(translator.device)
        write_record(folder.speed, RawSpeed(decode_s=seconds, peak_memory_bytes=peak, decoded_on=machine))
        result = unfinished_result(folder, prepared)
        return replace(result, status="done", files=folder.hashes(), **compute_figures(folder, prepared))

    return translator.lead(test)
