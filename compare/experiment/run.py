"""Run an experiment: read settings, prepare data, train, decode and score each model, time all of them.

An ``Experiment`` becomes ``Run`` objects in three steps, each done once: ``resolve_models`` decides the
settings of every model, the data are prepared, and ``match_budget`` decides widths or updates.
"""

import dataclasses
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from compare.config.run import Run, resolve_models, settings_hash
from compare.config.sections import Experiment
from compare.decoding.translator import Translator
from compare.experiment.budget import calibrate, describe_work, find_reference, match_budget, recall
from compare.experiment.compute_result import compute_figures, training_flops
from compare.experiment.folder import (
    begin_run,
    continue_longer,
    find_shorter,
    locked_for_setup,
    open_registry,
    request_runs,
    write_registry,
)
from compare.experiment.launch import Launch
from compare.experiment.likelihood import measure_likelihoods
from compare.experiment.prepare import (
    PreparedData,
    ensure_initial_weights_fit,
    ensure_models_fit,
    prepare_data,
)
from compare.experiment.task import task_of
from compare.experiment.timing import forget_timings, results_to_time, time_all
from compare.experiment.trainers import announced, build_trainer, gpu_conditions, take_part
from compare.results.records import RawSpeed, write_record
from compare.results.result import recorded_settings
from compare.results.run_folder import RunFolder
from compare.results.store import (
    Result,
    check_output_folder,
    read_result,
    read_results,
    save_result,
    write_json_lines,
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
            if experiment.budget.match == "none" and not find_shorter(runs):
                to_time = time_again or (timing and results_to_time(folder))
                if all(map(has_ended, runs)) and not to_time:
                    remedy = "delete the folder of a run to repeat it"
                    logger.info(f"{folder}: all {len(runs)} runs have ended; {remedy}")
                    _remove_leftovers(folder, runs)
                    return [read_result(run.folder) for run in runs]
            with locked_for_setup(folder):
                remove_leftovers(folder)
                prepared = prepare_data(experiment, folder / "encoded", tests=tests)
                registry = open_registry(folder, prepared)
                if experiment.budget.match == "time":
                    known = recall(registry, models)
                    if processes.size > 1 and known.keys() < {run.label for run in models}:
                        raise ValueError(
                            f"{context}: budget.match = 'time' is measured by one process: begin without "
                            "torchrun"
                        )
                    registry["seconds_per_update"] = calibrate(models, prepared, known)
                    registry["calibrated_as"] = registry.get("calibrated_as", {}) | describe_work(models)
                models = match_budget(models, prepared, registry.get("seconds_per_update", {}))
                runs = request_runs(models, folder, seeds, only)
                shorter = find_shorter(runs)
                ensure_models_fit(models, prepared.vocabulary_sizes)
                ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
                write_registry(folder, registry, runs, prepared, has_shorter=bool(shorter))
                continue_longer(shorter)
                prepared.keep_hash()
                if time_again:
                    forget_timings(folder)
            if launch is not None:
                train, decided = experiment.train, models[0].train
                train = replace(train, device=decided.device, precision=decided.precision)
                again = partial(
                    run_experiment,
                    replace(experiment, train=train),
                    folder.resolve(),
                    seeds=seeds,
                    only=only,
                    context=context,
                    tests=tests,
                )
                _announce(runs, prepared, reporter)
                if left := [run for run in runs if not has_ended(run)]:
                    launch.run(partial(again, timing=False), folder, left, reporter)
                if launch.slurm is not None:  # one more job does what this process does otherwise
                    if timing and results_to_time(folder):
                        launch.run(again, folder, [], reporter)
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
    if (folder / "experiment.json").is_file():
        read_results(folder)  # names what is damaged
    return models


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


def _announce(runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
    """Tell ``reporter`` the updates and FLOPs of all runs that have not ended."""
    expected = {}
    for run in runs:
        with suppress(ValueError):  # a damaged result is reported when its turn comes
            if not has_ended(run):
                passes = run.run.regularization.passes
                flops = training_flops(run.run.model.architecture, prepared=prepared, passes=passes)
                expected[run.name] = (run.run.train.max_updates, flops)
    reporter.expect(expected)


def has_ended(run: RunFolder) -> bool:
    """Return whether a run is done or has failed."""
    return run.folder.is_dir() and read_result(run.folder).status != "unfinished"


def _remove_leftovers(folder: Path, runs: Sequence[RunFolder]) -> None:
    """Remove what a process has left that was killed at its very end."""
    for place in (folder, *(run.folder for run in runs)):
        if (place / LOCK).exists():
            with suppress(Locked), lock_folder(place):
                remove_leftovers(place)


# One run: build, train, decode and score its model.


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
    """
    try:
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


def run_one(
    folder: RunFolder, prepared: PreparedData, reporter: Reporter, processes: Processes = SINGLE
) -> Result:
    """Train one model, decode what its task needs and score it; from where it was stopped.

    Args:
        folder: the run, and the folder for its files.
        prepared: the data, with the batches of the run's seed.
        reporter: shows the progress of training.
        processes: those that train and translate together; this is process 0 of them.

    Raises:
        TrainingDiverged: loss or gradient became NaN or infinite.
        Interrupted: a signal arrived; the state is saved.
        ConnectionError: another process has ended.
    """
    was_trained = folder.weights.is_file()
    with announced(folder, prepared, processes):
        translator = train_model(folder, prepared, reporter, processes)
        return translator.lead(partial(_test, folder, prepared, translator, was_trained=was_trained))


def train_model(
    folder: RunFolder, prepared: PreparedData, reporter: Reporter, processes: Processes = SINGLE
) -> Translator:
    """Train one model, from the start or from where it was stopped.

    Arguments and errors as for ``run_one``.

    Returns:
        A translator with the weights that were chosen on the validation set.
    """
    run = folder.run
    reset_peak_memory(torch.device(run.train.device))
    with reporter.training(folder.name, run.train.max_updates) as report:
        trainer, translator = build_trainer(folder, prepared, report, processes=processes)
        trainer.run()
    return translator


def _test(folder: RunFolder, prepared: PreparedData, translator: Translator, *, was_trained: bool) -> Result:
    """Decode the test sets as the task says, measure their perplexity, and compute all figures.

    The peak of memory is unknown where an earlier process has trained the model: it is that of training.
    """
    seconds = None
    if prepared.corpus.tests:
        seconds = task_of(folder.run).decode_tests(folder, translator, prepared.corpus)
        measure_likelihoods(translator, prepared.corpus, folder)
    peak = None if was_trained else peak_memory_bytes(translator.device)
    machine = this_machine(translator.device)
    write_record(folder.speed, RawSpeed(decode_s=seconds, peak_memory_bytes=peak, decoded_on=machine))
    result = unfinished_result(folder, prepared)
    return replace(result, status="done", files=folder.hashes(), **compute_figures(folder, prepared))


def unfinished_result(folder: RunFolder, prepared: PreparedData | None) -> Result:
    """Make the result record of a run that has begun: the fields that are known before training.

    Args:
        folder: the run.
        prepared: its data; None leaves their hashes out.
    """
    run = folder.run
    return Result(
        label=run.label,
        preset=run.preset,
        seed=run.train.seed,
        status="unfinished",
        **recorded_settings(run.conditions()),
        **task_of(run).search_settings(run),
        data_hash=prepared.corpus.content_hash if prepared else None,
        batch_hash=prepared.batch_hash if prepared else None,
        settings_hash=settings_hash(run),
        config_hash=folder.config_hash,
        code_version=code_version(run.plugins),
        **gpu_conditions(run),
        **dataclasses.asdict(this_machine(torch.device(run.train.device))),
    )
