"""Run one model of an experiment: build, train, decode, score and time it."""

import dataclasses
import json
import logging
import time

import torch

from compare.config.shared_settings import settings_hash
from compare.decoding.timing import time_decoding, time_latency
from compare.decoding.translator import Translator
from compare.experiment.build_trainer import build_trainer
from compare.experiment.compute_result import compute_figures
from compare.experiment.prepare import PreparedData
from compare.results.run_folder import RunFolder
from compare.results.store import Result
from compare.system.device import device_name
from compare.system.memory import peak_memory_bytes, reset_peak_memory
from compare.system.peak_flops import matmul_flops_per_s
from compare.system.progress import Reporter
from compare.system.version import code_version
from data.corpus import Corpus
from data.text.files import write_atomically

logger = logging.getLogger(__name__)


def unfinished_result(folder: RunFolder, prepared: PreparedData) -> Result:
    """Make the result record of a run that has begun: the fields that are known before training."""
    run = folder.run
    return Result(
        label=run.label,
        preset=run.preset,
        seed=run.train.seed,
        status="unfinished",
        beam=run.decode.beam_size,
        batch_tokens=run.train.batch_tokens,
        max_ratio=run.decode.max_ratio,
        valid_every=run.train.valid_every,
        average=run.train.average,
        label_smoothing=run.train.label_smoothing,
        clip_norm=run.train.clip_norm,
        precision=run.train.precision,
        device=device_name(torch.device(run.train.device)),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        data_hash=prepared.corpus.content_hash,
        batch_hash=prepared.batch_hash,
        settings_hash=settings_hash(run),
        config_hash=folder.config_hash,
        code_version=code_version(),
    )


def run_one(folder: RunFolder, prepared: PreparedData, reporter: Reporter) -> Result:
    """Train, decode, score and time one model, from the start or from where it was stopped.

    Args:
        folder: the run, and the folder for its files.
        prepared: the data, with the batches of the run's seed.
        reporter: shows the progress of training.

    Raises:
        TrainingDiverged: loss or gradient became NaN or infinite.
        Interrupted: a signal arrived; the state is saved.
    """
    run = folder.run
    reset_peak_memory(torch.device(run.train.device))
    with reporter.training(run.label, run.train.max_updates) as report:
        trainer, translator = build_trainer(folder, prepared, report)
        trainer.run()
    logger.info(f"{run.label}: decoding {', '.join(prepared.corpus.tests)}")
    seconds = translate_tests(translator, prepared.corpus, folder)
    measure_speed(translator, prepared.corpus, folder, seconds)
    result = unfinished_result(folder, prepared)
    return dataclasses.replace(
        result, status="done", files=folder.hashes(), **compute_figures(folder, prepared)
    )


def translate_tests(translator: Translator, corpus: Corpus, folder: RunFolder) -> float:
    """Decode every test set once and keep the translations; returns the seconds of decoding."""
    seconds = 0.0
    for test in corpus.tests:
        start = time.perf_counter()
        hypotheses = translator.translate(corpus.splits[test].src)
        seconds += time.perf_counter() - start
        write_atomically(folder.output(test), "".join(f"{line}\n" for line in hypotheses))
    return seconds


def measure_speed(translator: Translator, corpus: Corpus, folder: RunFolder, decode_s: float) -> None:
    """Time decoding and write speed.json, the raw repeats of everything that was timed.

    Args:
        translator: the trained model.
        corpus: its first test set is decoded.
        folder: the run, and where speed.json goes.
        decode_s: seconds that decoding all test sets took.
    """
    run = folder.run
    lines = corpus.splits[corpus.tests[0]].src[: run.bench.sentences]
    peak = peak_memory_bytes(translator.device)  # before timing, which resets the peak for each repeat
    greedy = time_decoding(translator, lines, beam_size=1, repeats=run.bench.repeats)
    beam = time_decoding(translator, lines, beam_size=run.decode.beam_size, repeats=run.bench.repeats)
    latency_lines = lines[: run.bench.latency_sentences]
    raw = {
        "greedy": dataclasses.asdict(greedy),
        "beam": dataclasses.asdict(beam),
        "latency_ms": time_latency(translator, latency_lines, beam_size=run.decode.beam_size),
        "decode_s": decode_s,
        "matmul_flops_per_s": matmul_flops_per_s(translator.device, run.train.precision),
        "peak_memory_bytes": peak,
    }
    write_atomically(folder.speed, json.dumps(raw, indent=2) + "\n")
