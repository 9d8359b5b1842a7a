"""Timing of all models of an experiment in turn, after the last of its runs has ended."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, cast
from uuid import uuid4

import torch
from torch import nn

from compare.config.resolve import Run
from compare.decoding.search import Hypothesis
from compare.experiment.compute_result import speed_figures
from compare.experiment.prepare import PreparedData
from compare.protocol import EncoderDecoder
from compare.results.records import Latency, Session, Timings, read_speed
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import (
    Result,
    read_registry,
    read_results,
    save_result,
    write_record,
)
from compare.system.device import set_numerics
from compare.system.messages import first_line, is_out_of_memory
from compare.system.plugins import source_version
from compare.system.timer import (
    Speed,
    TimedRepeat,
    best_reference,
    conditions_of,
    measure_machine,
    move,
    time_in_turn,
    timed,
)
from compare.training.log import read_metrics
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from compare.training.step import train_step
from data.batches import Batch, BatchStream
from data.files import hash_file
from data.locks import lock_folder

logger = logging.getLogger(__name__)


def time_all(folder: Path, settings: Run, prepared: PreparedData) -> None:
    """Time all models in turn and write their speeds, if every run has ended and they are not timed yet.

    Each process calls this after its runs; the last one times. Figures are complete once all results have the
    same ``timed_together``; a stopped timing is repeated. The run of a model's lowest seed with weights is
    timed, and its other seeds get the same figures.
    """
    with lock_folder(folder, wait=True):
        results = results_to_time(folder)
        if not results:
            return
        runs = {label: run for label, run in _runs_to_time(folder, results).items() if run}
        logger.info(f"{folder}: timing {len(runs)} models in turn: {', '.join(runs)}")
        if earlier := list(dict.fromkeys(result.label for result in results if result.timed_together)):
            logger.info(f"timed again, for comparison with new models: {', '.join(earlier)}")
        for result in results:  # a damaged file is found before the timing, which takes minutes
            run = RunFolder.read(folder / result.run)
            read_speed(run.speed)
            read_metrics(run.metrics)
        try:
            timings = _time_models(list(runs.values()), settings, prepared)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error(
                f"speeds were not measured: out of memory: {first_line(error)}; "
                "run the same command again to retry"
            )
            return
        for result in results:
            write_timings(RunFolder.read(folder / result.run), result, timings[result.label])


def timing_seconds(run: Run) -> float:
    """Return the least seconds of timing a model, without latency and warm-up."""
    return (3 if run.translates else 1) * run.bench.repeats * run.bench.seconds


def forget_timings(folder: Path) -> None:
    """Let ``time_all`` time all models again; ValueError if a model has no weights any more."""
    with lock_folder(folder, wait=True):
        timed = [result for result in read_results(folder) if result.timed_together]
        if without := _labels_without_weights(folder, timed):
            raise ValueError(f"{folder}: no run of {without} has weights, so they cannot be timed again")
        for result in timed:
            save_result(folder / result.run, dataclasses.replace(result, timed_together=None))


def results_to_time(folder: Path) -> list[Result]:
    """Return the finished runs if all runs have ended and these were not timed together."""
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
    """Open the run of the lowest seed with weights by label; None without weights."""
    runs: dict[str, RunFolder | None] = dict.fromkeys(result.label for result in results)
    for result in sorted(results, key=lambda result: (result.seed, -(result.budget or 0))):
        if runs[result.label] is None and (run := RunFolder.read(folder / result.run)).weights.is_file():
            runs[result.label] = run
    return runs


def _labels_without_weights(folder: Path, results: Sequence[Result]) -> str:
    return ", ".join(label for label, run in _runs_to_time(folder, results).items() if run is None)


def write_timings(run: RunFolder, result: Result, timings: Timings) -> None:
    """Write timings into speed.json, and their figures into result.json."""
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


# The timed work: training, greedy and beam search of many lines, and beam search of single lines.


def first_updates(stream: BatchStream, number: int, accumulate: int) -> list[Sequence[Batch]]:
    """Return the batches of the first updates of training, each in ``accumulate`` parts."""
    batches = stream.global_batches(1, accumulate=accumulate)
    return [batch.parts for batch in islice(batches, number)]


class TrainingWork:
    """Workload of training: updates on fixed batches, at the last learning rate of training.

    The optimizer is a new one: its cost does not depend on its state. Moving average, log, validation,
    checkpoints and the transfer of batches are left out.
    """

    def __init__(self, run: Run, model: EncoderDecoder[Any, Any], updates: Sequence[Sequence[Batch]]) -> None:
        """Move the batches to the model's device; each update has a batch in parts."""
        train, optim = run.train, run.model.optim
        self.train_config = train
        self.criterion = TranslationLoss(model, train.label_smoothing, run.regularization)
        self.optimizer = build_optimizer(self.criterion, optim)
        self.holders = self.criterion, self.optimizer
        for group in self.optimizer.param_groups:
            group["lr"] = optim.learning_rate_at(train.max_updates, train.max_updates, train.decay)
        batches, device = list(chain.from_iterable(updates)), next(self.criterion.parameters()).device
        self.sentences = sum(map(len, batches))
        self.tokens = sum(batch.src_tokens + batch.tgt_tokens for batch in batches)
        self._updates = [[part.to(device) for part in parts] for parts in updates]

    def __call__(self) -> None:
        """Do all updates once."""
        self.criterion.train()
        for parts in self._updates:
            train_step(self.criterion, self.optimizer, self.train_config, *parts)

    warm_up = __call__


class SearchWork:
    """Workload of searches one after the other: one for all lines, or for the latency one per line."""

    def __init__(
        self,
        searches: Sequence[Callable[[], list[Hypothesis]]],
        device: torch.device,
        model: EncoderDecoder[Any, Any],
    ) -> None:
        self.searches, self.device, self.holders = searches, device, (cast(nn.Module, model),)
        self._warming = cycle(searches)
        self.sentences = self.tokens = 0
        """Amount of work, of tokens that of the translations with their ends; known after the first call."""
        self.ms: list[list[float]] = []

    def warm_up(self) -> None:
        """Do the first search, then the next one."""
        next(self._warming)()

    def __call__(self) -> None:
        """Do all searches."""
        hypotheses: list[Hypothesis] = []

        def search(number: int) -> None:
            hypotheses.extend(self.searches[number]())

        numbers = range(len(self.searches))
        self.ms.append([1e3 * timed(partial(search, number), self.device) for number in numbers])
        self.sentences, self.tokens = len(hypotheses), sum(len(best.tokens) + 1 for best in hypotheses)


PHASES = {"greedy": "greedy search", "beam": "beam search", "latency": "latency", "train": "training"}


def _time_models(runs: Sequence[RunFolder], settings: Run, prepared: PreparedData) -> dict[str, Timings]:
    """Time the models of ``runs``, one kind of work of all in turn; returns their timings by label."""
    bench, device = settings.bench, torch.device(settings.train.device)
    torch.manual_seed(settings.train.seed)
    set_numerics(device, deterministic=settings.train.deterministic)
    works = [_make_works(run, settings, prepared) for run in runs]
    records: list[dict[str, Any]] = [dict.fromkeys(PHASES) for _ in runs]
    all_repeats: list[TimedRepeat] = []
    for number, phase in enumerate(works[0], start=1):
        timed_repeats = time_in_turn(
            [work[phase] for work in works],
            device,
            repeats=bench.repeats,
            seconds=0.0 if phase == "latency" else bench.seconds,
            name=f"timing {PHASES[phase]} ({number} of {len(works[0])})",
        )
        for record, work, repeats in zip(records, works, timed_repeats, strict=True):
            record[phase] = _record(phase, work[phase], repeats)
            all_repeats += repeats
    fastest = min(median(record[phase].reference_s) for record in records for phase in works[0])
    machine = measure_machine(device, all_repeats)
    session = Session(
        **dataclasses.asdict(machine),
        timed_together=uuid4().hex[:12],
        best_reference_s=best_reference(machine, fastest),
        code_version=source_version(),
    )
    return {
        run.run.label: Timings(session=session, **record) for run, record in zip(runs, records, strict=True)
    }


def _make_works(
    run: RunFolder, settings: Run, prepared: PreparedData
) -> dict[str, TrainingWork | SearchWork]:
    """Make the workloads of a trained model by phase; language models only train.

    The model is on the processor afterwards.
    """
    translator = load_model(run.folder, settings.train.device)
    model, device = translator.model, translator.device
    works: dict[str, TrainingWork | SearchWork] = {}
    if run.run.translates:
        bench, search = settings.bench, translator.search
        lines = prepared.corpus.splits[prepared.corpus.tests[0]].src
        many, single = lines[: bench.sentences], lines[: bench.latency_sentences]
        works["greedy"] = SearchWork([lambda: search(many, 1)], device, model)
        works["beam"] = SearchWork([lambda: search(many)], device, model)
        works["latency"] = SearchWork([partial(search, [line]) for line in single], device, model)
    updates = first_updates(prepared.stream, settings.bench.updates, run.run.train.accumulate)
    works["train"] = training = TrainingWork(run.run, model, updates)
    move(training.holders, torch.device("cpu"))
    return works


def _record(phase: str, work: TrainingWork | SearchWork, repeats: Sequence[TimedRepeat]) -> Speed | Latency:
    conditions = conditions_of(repeats)
    if phase == "latency" and isinstance(work, SearchWork):
        return Latency(ms=work.ms, **conditions)
    seconds = [repeat.seconds for repeat in repeats]
    return Speed(sentences=work.sentences, tokens=work.tokens, seconds=seconds, **conditions)
