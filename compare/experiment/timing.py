"""Timing of all models of an experiment in turn, after the last of its runs has ended."""

import dataclasses
import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import torch

from compare.config.resolve import Run
from compare.decoding.translator import DecodingWork, LatencyWork, Translator
from compare.experiment.compute_result import speed_figures
from compare.experiment.prepare import PreparedData
from compare.results.records import Latency, Session, Timings, read_speed
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import (
    Result,
    read_registry,
    read_results,
    save_result,
    write_record,
)
from compare.system.device import set_numerics, this_machine
from compare.system.locks import lock_folder
from compare.system.measure import Speed, TimedRepeat, best_reference, time_in_turn
from compare.system.messages import first_line, is_out_of_memory
from compare.training.log import read_metrics
from compare.training.step import TrainingWork
from data.batches import Batch, BatchStream
from data.files import hash_file

logger = logging.getLogger(__name__)


def time_all(folder: Path, settings: Run, prepared: PreparedData) -> None:
    """Time all models in turn and write their speeds, if every run has ended and they are not timed yet.

    Each process calls this after its runs, and only the last one finds that all have ended. The figures are
    complete once all results have the same ``timed_together``; a timing that was stopped is made again. One
    run per model is timed, that of its lowest seed that has weights: the other seeds get the same figures.

    Args:
        folder: the folder of the experiment.
        settings: any run of the experiment, for the sections ``train`` and ``bench``.
        prepared: its data; all models are trained on the same batches of it.

    Raises:
        ValueError: a file of a finished run is damaged.
    """
    with lock_folder(folder, wait=True):
        results = results_to_time(folder)
        if not results:
            return
        runs = {label: run for label, run in _runs_to_time(folder, results).items() if run}
        logger.info(f"{folder}: timing {len(runs)} models in turn: {', '.join(runs)}")
        if earlier := list(dict.fromkeys(each.label for each in results if each.timed_together)):
            logger.info(f"timed again, to compare with what was added: {', '.join(earlier)}")
        for result in results:  # a damaged file is found before the timing, which takes minutes
            run = RunFolder.read(folder / result.run)
            read_speed(run.speed)
            read_metrics(run.metrics)
        try:
            timings = _time_models(list(runs.values()), settings, prepared)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error(f"speeds are unknown: out of memory: {first_line(error)}; run this again to retry")
            return
        for result in results:
            write_timings(RunFolder.read(folder / result.run), result, timings[result.label])


def timing_seconds(run: Run) -> float:
    """Return how long the timing of a model lasts at least: training and two searches, of translation models.

    The latency, and what warms up, last no given time.
    """
    return (3 if run.translates else 1) * run.bench.repeats * run.bench.seconds


def forget_timings(folder: Path) -> None:
    """Let ``time_all`` time all models of an experiment again, for example because they were disturbed.

    Raises:
        ValueError: no run of a model has weights, as in a published folder.
    """
    with lock_folder(folder, wait=True):
        timed = [result for result in read_results(folder) if result.timed_together]
        if without := _labels_without_weights(folder, timed):
            raise ValueError(f"{folder}: no run of {without} has weights, so they cannot be timed again")
        for result in timed:
            save_result(folder / result.run, dataclasses.replace(result, timed_together=None))


def results_to_time(folder: Path) -> list[Result]:
    """Find the finished runs of an experiment if all its runs have ended and these were not timed together.

    A run that ended for lack of memory counts as ended: if it is finished later, all are timed again.
    """
    planned = read_registry(folder).runs
    results = [result for result in read_results(folder) if result.run in planned] if planned else []
    done = [result for result in results if result.status == "done" and not result.is_external]
    ids = {result.timed_together for result in done}
    if any(result.status == "unfinished" and result.reason is None for result in results):
        return []
    if len(ids) == 1 and None not in ids:
        return []
    if without := _labels_without_weights(folder, done):
        logger.warning(f"{folder}: no run of {without} has weights, so the models are not timed together")
        return []
    return done


def _runs_to_time(folder: Path, results: Sequence[Result]) -> dict[str, RunFolder | None]:
    """Open of each label the run of the lowest seed that has weights; None where no seed has."""
    runs: dict[str, RunFolder | None] = dict.fromkeys(result.label for result in results)
    for result in sorted(results, key=lambda each: each.seed):
        if runs[result.label] is None and (run := RunFolder.read(folder / result.run)).weights.is_file():
            runs[result.label] = run
    return runs


def _labels_without_weights(folder: Path, results: Sequence[Result]) -> str:
    return ", ".join(label for label, run in _runs_to_time(folder, results).items() if run is None)


def write_timings(run: RunFolder, result: Result, timings: Timings) -> None:
    """Write the timings into a run's speed.json, and the figures that follow into its result.json."""
    raw = dataclasses.replace(read_speed(run.speed), timings=timings)
    write_record(run.speed, raw)
    figures = speed_figures(
        raw,
        read_metrics(run.metrics),
        flops=result.train_flops_per_token or 0.0,
        precision=run.run.train.precision,
    )
    files = {**result.files, run.speed.name: hash_file(run.speed)}
    save_result(run.folder, dataclasses.replace(result, files=files, **figures))


# What is timed: training, greedy and beam search of many lines, and beam search of single lines.


PHASES = {"greedy": "greedy search", "beam": "beam search", "latency": "latency", "train": "training"}


def first_updates(stream: BatchStream, number: int, accumulate: int) -> list[Sequence[Batch]]:
    """Return the batches of the first updates of training, each in ``accumulate`` parts."""
    batches = stream.global_batches(1, accumulate=accumulate)
    return [batch.parts for batch in islice(batches, number)]


def _time_models(runs: Sequence[RunFolder], settings: Run, prepared: PreparedData) -> dict[str, Timings]:
    """Time the models of ``runs``, one kind of work of all in turn; returns their timings by label.

    Raises:
        ValueError: the weights of a run are damaged or of another model.
    """
    bench, device = settings.bench, torch.device(settings.train.device)
    torch.manual_seed(settings.train.seed)
    set_numerics(device, deterministic=settings.train.deterministic)
    translators = [load_model(run.folder, settings.train.device) for run in runs]
    works = [_make_works(*each, settings, prepared) for each in zip(runs, translators, strict=True)]
    records: list[dict[str, Any]] = [dict.fromkeys(PHASES) for _ in runs]
    references: list[float] = []
    for place, phase in enumerate(works[0], start=1):
        name = f"timing {PHASES[phase]} ({place} of {len(works[0])})"
        of_phase, repeats = [each[phase] for each in works], [list[TimedRepeat]() for _ in runs]
        options: dict[str, Any] = {"repeats": bench.repeats, "seconds": bench.seconds}
        if phase == "latency":  # which times each sentence
            options |= {"seconds": 0.0, "warm_ups": [work.warm_up for work in of_phase]}
        for index, repeat in time_in_turn(of_phase, device, name=name, **options):
            repeats[index].append(repeat)
        references += [median(repeat.reference_s for repeat in found) for found in repeats]
        for record, work, found in zip(records, of_phase, repeats, strict=True):
            record[phase] = _record(work, found)
    session_id, timings, best = uuid4().hex[:12], {}, best_reference(device, min(references))
    for run, record in zip(runs, records, strict=True):
        session = Session(
            **dataclasses.asdict(this_machine(device)),
            timed_together=session_id,
            best_reference_s=best,
        )
        timings[run.run.label] = Timings(session=session, **record)
    return timings


def _make_works(
    run: RunFolder, translator: Translator, settings: Run, prepared: PreparedData
) -> dict[str, Any]:
    """Make the workloads of a trained model by phase; of a language model training alone."""
    works: dict[str, Any] = {}
    if run.run.translates:
        bench, beam = settings.bench, translator.decode.beam_size
        sources = prepared.corpus.splits[prepared.corpus.tests[0]].src
        works["greedy"] = DecodingWork(translator, sources[: bench.sentences], 1)
        works["beam"] = DecodingWork(translator, sources[: bench.sentences], beam)
        works["latency"] = LatencyWork(translator, sources[: bench.latency_sentences], beam)
    updates = first_updates(prepared.stream, settings.bench.updates, run.run.train.accumulate)
    return works | {"train": TrainingWork(run.run, translator.model, updates)}


def _record(work: Any, repeats: Sequence[TimedRepeat]) -> Speed | Latency:
    """Make the record of a workload that was timed."""
    machine: dict[str, Any] = {
        "cpu_shares": [each.cpu_share for each in repeats],
        "reference_s": [each.reference_s for each in repeats],
    }
    if isinstance(work, LatencyWork):
        return Latency(ms=work.ms, **machine)
    seconds = [each.seconds for each in repeats]
    return Speed(sentences=work.sentences, tokens=work.tokens, seconds=seconds, **machine)
