"""Run one model of an experiment: build, train, choose its length penalty, decode and score it."""

import dataclasses
import logging
import time
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
from compare.experiment.select_penalty import select_penalty
from compare.results.run_folder import RunFolder
from compare.results.speed_file import RawSpeed, write_speed
from compare.results.store import Result
from compare.system.distributed import SINGLE, Processes
from compare.system.machine import this_machine
from compare.system.memory import peak_memory_bytes, reset_peak_memory
from compare.system.progress import Reporter
from compare.system.version import code_version
from data.corpus import Corpus
from data.text.files import write_atomically

logger = logging.getLogger(__name__)


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
        beam=run.decode.beam_size,
        batch_tokens=run.train.batch_tokens,
        accumulate=run.train.accumulate if run.train.accumulate > 1 else None,
        max_ratio=run.decode.max_ratio,
        valid_every=run.train.valid_every,
        average=run.train.average,
        label_smoothing=run.train.label_smoothing,
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
    """Train one model, choose its length penalty, decode and score it; from where it was stopped.

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
    with announced(folder, prepared, processes):
        translator = train_model(folder, prepared, reporter, processes)
        return translator.lead(partial(_translate_and_score, folder, prepared, translator))


def _translate_and_score(folder: RunFolder, prepared: PreparedData, translator: Translator) -> Result:
    """Choose the length penalty, decode the test sets, score them, and measure their perplexity."""
    translator.penalty = select_penalty(folder, translator, prepared.corpus.splits["valid"])
    logger.info(f"{folder.run.label}: decoding {', '.join(prepared.corpus.tests)}")
    seconds = translate_tests(translator, prepared.corpus, folder)
    write_speed(
        folder.speed, RawSpeed(decode_s=seconds, peak_memory_bytes=peak_memory_bytes(translator.device))
    )
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
    with reporter.training(run.label, run.train.max_updates) as report:
        trainer, translator = build_trainer(folder, prepared, report, processes=processes)
        trainer.run()
    return translator


def translate_tests(translator: Translator, corpus: Corpus, folder: RunFolder) -> float:
    """Decode every test set once and keep the translations; returns the seconds of decoding."""
    seconds = 0.0
    for test in corpus.tests:
        start = time.perf_counter()
        hypotheses = translator.translate(corpus.splits[test].src)
        seconds += time.perf_counter() - start
        write_atomically(folder.plain_output(test), "".join(f"{line}\n" for line in hypotheses))
    return seconds
