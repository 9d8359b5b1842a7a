"""Run an experiment: train, decode and score every run, then time all models; continue an earlier call.

An ``Experiment`` becomes ``Run`` objects in three steps, each done once: ``resolve_models`` decides the
settings of every model, the data are prepared, and ``match_budget`` decides widths or updates.
"""

import dataclasses
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from compare.config.run import Run, resolve_models, settings_hash
from compare.config.sections import Experiment
from compare.decoding.translator import Translator
from compare.experiment.budget import calibrate, describe_work, find_reference, match_budget, recall
from compare.experiment.compute_result import compute_figures, training_flops
from compare.experiment.folder import (
    RequestedRuns,
    begin_run,
    locked_for_setup,
    open_registry,
    refuse_other_settings,
    write_registry,
)
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
from compare.results.records import RawSpeed, write_speed
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

# Run one model of an experiment: build, train, decode and score it.


def unfinished_result(folder: RunFolder, prepared: PreparedData | None) -> Result:
    """Make the result record of a run that has begun: the fields that are known before training.

    Args:
        folder: the run.
        prepared: its data; None leaves their hashes out.
    """
    run = folder.run
    sampling = run.regularization.subword_sampling
    return Result(
        label=run.label,
        preset=run.preset,
        seed=run.train.seed,
        status="unfinished",
        batch_tokens=run.train.batch_tokens,
        init_hash=run.train.init_hash,
        accumulate=run.train.accumulate if run.train.accumulate > 1 else None,
        **task_of(run).search_settings(run),
        valid_every=run.train.valid_every,
        average=run.train.average,
        average_every=run.train.average_every or None,
        ema=run.train.ema or None,
        label_smoothing=run.train.label_smoothing,
        consistency=run.regularization.consistency_summary,
        subword_sampling=f"{run.vocabulary.kind} {sampling:g}" if sampling else None,
        clip_norm=run.train.clip_norm,
        precision=run.train.precision,
        data_hash=prepared.corpus.content_hash if prepared else None,
        batch_hash=prepared.batch_hash if prepared else None,
        settings_hash=settings_hash(run),
        config_hash=folder.config_hash,
        code_version=code_version(run.plugins),
        **gpu_conditions(run),
        **dataclasses.asdict(this_machine(torch.device(run.train.device))),
    )


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


def _test(folder: RunFolder, prepared: PreparedData, translator: Translator, *, was_trained: bool) -> Result:
    """Decode the test sets as the task says, measure their perplexity, and compute all figures.

    The peak of memory is unknown where an earlier process has trained the model: it is that of training.
    """
    seconds = task_of(folder.run).decode_tests(folder, translator, prepared.corpus)
    peak = None if was_trained else peak_memory_bytes(translator.device)
    machine = this_machine(translator.device)
    write_speed(folder.speed, RawSpeed(decode_s=seconds, peak_memory_bytes=peak, decoded_on=machine))
    measure_likelihoods(translator, prepared.corpus, folder)
    result = unfinished_result(folder, prepared)
    return dataclasses.replace(
        result, status="done", files=folder.hashes(), **compute_figures(folder, prepared)
    )


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
    with reporter.training(run.label, run.train.max_updates, name=folder.name) as report:
        trainer, translator = build_trainer(folder, prepared, report, processes=processes)
        trainer.run()
    return translator


logger = logging.getLogger(__name__)


class Launcher(Protocol):
    """The way in which the runs of an experiment are finished and its models timed."""

    def resolve(self, experiment: Experiment, context: str) -> list[Run]:
        """Decide the settings of each model, on the devices that its runs get; see ``resolve_models``."""

    def run_each(self, runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
        """Finish each run that has not ended; if one fails, the others still run."""

    def time_all(self, folder: Path, settings: Run, prepared: PreparedData) -> None:
        """Time all models in turn if all runs have ended; see ``timing.time_all``."""


class InTurn:
    """Finish the runs one after the other, in this process and those that it trains together with."""

    def __init__(self, processes: Processes = SINGLE) -> None:
        self.processes = processes

    def resolve(self, experiment: Experiment, context: str) -> list[Run]:
        """Decide the settings of each model, for the devices of this machine."""
        return resolve_models(experiment, context)

    def run_each(self, runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
        """Finish each run that has not ended; if one fails, the others still run.

        Raises:
            ValueError: a run could not be finished, such as one with damaged files; all others have been run.
            OSError: likewise, such as a file that cannot be read.
            ConnectionError: another process that torchrun has started has ended; no other run was begun.
        """
        errors: list[ValueError | OSError] = []
        announce(runs, prepared, reporter)
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
                        finish_run(run, prepared.for_seed(run.run.train.seed), reporter, self.processes)
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

    def time_all(self, folder: Path, settings: Run, prepared: PreparedData) -> None:
        """Time all models in turn if all runs have ended."""
        time_all(folder, settings, prepared)


def run_experiment(
    experiment: Experiment,
    folder: str | Path,
    reporter: Reporter | None = None,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launcher: Launcher | None = None,
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
        reporter: shows the progress of training; by default log messages do.
        seeds: each model is trained once from each seed; by default from ``[train] seed`` alone.
        only: labels of the models that this call trains, in which * stands for any text; by default all. A
            budget is matched over all models in any case.
        context: the file that error messages name.
        launcher: how the runs are finished, such as ``SideBySide(jobs=4)``; by default one after the other.
        time_again: time all models again, also if they have been timed.

    Returns:
        The result of every run that was asked for, in order; ``read_results(folder)`` gives those of earlier
        calls too.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
        Interrupted: a signal arrived; everything is saved.
        ConnectionError: another process that torchrun has started has ended.
    """
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    with join_processes() as processes:
        if launcher is not None and processes.size > 1:
            raise ValueError("torchrun starts processes, and so do --jobs and --slurm: use one of them")
        if not processes.is_main:
            take_part(processes)
            return []
        reporter, launcher = reporter or Reporter(quiet=True), launcher or InTurn(processes)
        try:
            requested = RequestedRuns(folder=Path(folder), seeds=seeds, only=only)
            return _run_experiment(
                experiment, requested, reporter, context, launcher, processes, time_again=time_again
            )
        finally:
            processes.dismiss()


def _run_experiment(
    experiment: Experiment,
    requested: RequestedRuns,
    reporter: Reporter,
    context: str,
    launcher: Launcher,
    processes: Processes,
    *,
    time_again: bool,
) -> list[Result]:
    """Do in process 0 what ``run_experiment`` does."""
    folder = requested.folder
    code_version()  # of the sources as they are now: they may be edited during a long run
    models = launcher.resolve(experiment, context)
    check_settings(models, folder)
    runs = requested.of(models)
    if experiment.budget.match == "none":
        refuse_other_settings(runs)
        if all(has_ended(run) for run in runs) and not (time_again or results_to_time(folder)):
            logger.info(f"{folder}: all {len(runs)} runs have ended; delete the folder of a run to repeat it")
            for place in (folder, *(run.folder for run in runs)):
                if (place / LOCK).exists():  # of a process that was killed at its very end
                    with suppress(Locked), lock_folder(place):
                        remove_leftovers(place)
            return [read_result(run.folder) for run in runs]
    with locked_for_setup(folder):
        remove_leftovers(folder)
        prepared = prepare_data(experiment, folder / "encoded")
        registry = open_registry(folder, prepared)
        if experiment.budget.match == "time":
            known = recall(registry, models)
            registry["seconds_per_update"] = calibrate(models, prepared, known, processes)
            registry["calibrated_as"] = registry.get("calibrated_as", {}) | describe_work(models)
        if experiment.budget.match != "none":
            models = match_budget(models, prepared, registry.get("seconds_per_update", {}))
            runs = requested.of(models)
            refuse_other_settings(runs)
        ensure_models_fit(models, prepared.vocabulary_sizes)
        ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
        write_registry(folder, registry, runs, prepared)
        prepared.keep_hash()
        if time_again:
            forget_timings(folder)
    launcher.run_each(runs, prepared, reporter)
    launcher.time_all(folder, models[0], prepared)
    return [read_result(run.folder) for run in runs]


def announce(runs: Sequence[RunFolder], prepared: PreparedData, reporter: Reporter) -> None:
    """Tell ``reporter`` the updates and FLOPs of all runs that have not ended."""
    expected = {}
    for run in runs:
        with suppress(ValueError):  # a damaged result is reported when its turn comes
            if not has_ended(run):
                passes = run.run.regularization.passes
                flops = training_flops(run.run.model.architecture, prepared=prepared, passes=passes)
                expected[run.name] = (run.run.train.max_updates, flops)
    reporter.expect(expected)


def check_settings(models: Sequence[Run], folder: Path) -> None:
    """Find mistakes that need no data: the budget's reference, and a folder that cannot be used."""
    find_reference(models)
    ensure_models_fit(models, (len(SPECIALS) + 1,) * 2)  # the smallest vocabularies, while others are unknown
    check_output_folder(folder)
    if (folder / "experiment.json").is_file():
        read_results(folder)  # names what is damaged


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
        result = dataclasses.replace(unfinished_result(run, prepared), status="failed", reason=str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = f"out of memory: {first_line(error)}"
        logger.error(f"{run.name}: {reason}; run the same command to try again")
        result = dataclasses.replace(unfinished_result(run, prepared), reason=reason)
    save_result(run.folder, result)
    return result


def has_ended(run: RunFolder) -> bool:
    """Return whether a run is done or has failed."""
    return run.folder.is_dir() and read_result(run.folder).status != "unfinished"
