"""Run one model of an experiment: build, train, decode and score it."""

import dataclasses
from functools import partial

import torch

from compare.config.shared_settings import settings_hash
from compare.decoding.translator import Translator
from compare.experiment.build_trainer import build_trainer
from compare.experiment.compute_result import compute_figures
from compare.experiment.data_parallel import announced
from compare.experiment.forced_scoring import measure_likelihoods
from compare.experiment.gpu_conditions import gpu_conditions
from compare.experiment.prepare import PreparedData
from compare.experiment.task import task_of
from compare.results.run_folder import RunFolder
from compare.results.speed_file import RawSpeed, write_speed
from compare.results.store import Result, extended_from
from compare.system.distributed import SINGLE, Processes
from compare.system.machine import this_machine
from compare.system.memory import peak_memory_bytes, reset_peak_memory
from compare.system.progress import Reporter
from compare.system.version import code_version


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
        extended_from=extended_from(folder.folder),
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
