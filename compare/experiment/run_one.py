"""Bring one run of an experiment to its end: build, train, decode, score and time one model."""

import dataclasses
import json
import logging
import time

import torch

from compare.config.resolve_model import resolve_model
from compare.config.sections import Experiment
from compare.decoding.timing import time_decoding, time_latency
from compare.decoding.translator import Translator
from compare.experiment.compute_result import compute_figures
from compare.experiment.prepare import PreparedData
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.results.store import Result
from compare.system.device import device_name, pick_device
from compare.system.memory import peak_memory_bytes, reset_peak_memory
from compare.system.peak_flops import matmul_flops_per_s
from compare.system.progress import Reporter
from compare.system.version import code_version
from compare.training.loss import TranslationLoss
from compare.training.trainer import Trainer
from compare.training.validation import Validator
from data.corpus import Corpus
from data.text.files import write_atomically

logger = logging.getLogger(__name__)


def unfinished_result(run: RunFolder, prepared: PreparedData) -> Result:
    """The fields of a row that are known before anything is trained."""
    train = run.experiment.train
    device = pick_device(train.device)
    return Result(
        label=run.model.label,
        preset=run.model.preset,
        seed=train.seed,
        status="unfinished",
        beam=run.experiment.decode.beam_size,
        batch_tokens=train.batch_tokens,
        precision=train.precision,
        device=device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        data_hash=prepared.corpus.content_hash,
        batch_hash=prepared.batch_hash,
        config_hash=run.config_hash,
        code_version=code_version(),
    )


def run_one(run: RunFolder, prepared: PreparedData, reporter: Reporter) -> Result:
    """Train, decode, score and time one model, from the start or from where it was stopped."""
    experiment, device = run.experiment, pick_device(run.experiment.train.device)
    resolved = resolve_model(run.model)
    torch.manual_seed(experiment.train.seed)
    reset_peak_memory(device)
    model = build(resolved.architecture, *(len(side) for side in prepared.vocabularies)).to(device)
    criterion = TranslationLoss(model, experiment.train.label_smoothing)
    translator = Translator(model, prepared.vocabularies, experiment.decode, device)
    validator = Validator(
        criterion, translator, prepared.corpus.splits["valid"], prepared.valid, experiment.train.batch_tokens
    )
    with reporter.training(run.model.label, experiment.train.max_updates) as report:
        Trainer(
            criterion, prepared.stream, validator, experiment.train, resolved.optim, run.folder, report
        ).run()
    logger.info(f"{run.model.label}: decoding {', '.join(prepared.corpus.tests)}")
    seconds = translate_tests(translator, prepared.corpus, run)
    measure_speed(translator, experiment, prepared.corpus, run, seconds)
    known = unfinished_result(run, prepared)
    return dataclasses.replace(known, status="done", files=run.hashes(), **compute_figures(run, prepared))


def translate_tests(translator: Translator, corpus: Corpus, run: RunFolder) -> float:
    """Decode every test set once and keep the translations; returns the seconds of decoding."""
    seconds = 0.0
    for test in corpus.tests:
        start = time.perf_counter()
        hypotheses = translator.translate(corpus.splits[test].src)
        seconds += time.perf_counter() - start
        write_atomically(run.output(test), "".join(f"{line}\n" for line in hypotheses))
    return seconds


def measure_speed(
    translator: Translator, experiment: Experiment, corpus: Corpus, run: RunFolder, decode_s: float
) -> None:
    """Time decoding, and keep the raw repeats of all that is measured."""
    bench, beam_size = experiment.bench, experiment.decode.beam_size
    lines = corpus.splits[corpus.tests[0]].src[: bench.sentences]
    peak = peak_memory_bytes(translator.device)  # before the clock, which measures each turn's
    greedy = time_decoding(translator, lines, beam_size=1, repeats=bench.repeats)
    beam = time_decoding(translator, lines, beam_size=beam_size, repeats=bench.repeats)
    raw = {
        "greedy": dataclasses.asdict(greedy),
        "beam": dataclasses.asdict(beam),
        "latency_ms": time_latency(translator, lines[: bench.latency_sentences], beam_size=beam_size),
        "decode_s": decode_s,
        "matmul_flops_per_s": matmul_flops_per_s(translator.device, experiment.train.precision),
        "peak_memory_bytes": peak,
    }
    write_atomically(run.speed, json.dumps(raw, indent=2) + "\n")
