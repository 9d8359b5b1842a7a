"""Timing of all models of an experiment in turn, after the last of its runs has ended."""

import dataclasses
import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from uuid import uuid4

import torch

from compare.config.run import Run
from compare.experiment.experiment_folder import lowest_seeds
from compare.experiment.prepare import PreparedData
from compare.experiment.timing.speed_figures import speed_figures
from compare.experiment.timing.timed_model import TimedModel, TimingInputs
from compare.results.run_folder import RunFolder
from compare.results.speed_file import Timings, read_speed, write_speed
from compare.results.store import Result, read_registry, read_results, save_result, write_json_lines
from compare.system.hints import first_line
from compare.system.locks import lock_folder
from compare.system.memory import is_out_of_memory
from compare.system.timing import TimedRepeat, Workload, time_in_turn
from compare.training.metrics_log import read_metrics
from data.text.files import hash_file

logger = logging.getLogger(__name__)


def time_all(folder: Path, settings: Run, prepared: PreparedData) -> None:
    """Time all models in turn and write their speeds, if every run has ended and they are not timed yet.

    Each process calls this after its runs, and only the last one finds that all have ended. The figures are
    complete once all results have the same ``timed_together``; a timing that was stopped is made again. One
    run per model is timed, that of its lowest finished seed: the other seeds get the same figures.

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
        timed = lowest_seeds(results)
        runs = {label: RunFolder.read(folder / result.run) for label, result in timed.items()}
        logger.info(f"{folder}: timing {len(runs)} models in turn: {', '.join(runs)}")
        if earlier := [label for label, result in timed.items() if result.timed_together]:
            logger.info(f"timed again, to compare with what was added: {', '.join(earlier)}")
        try:
            timings = _time_models(list(runs.values()), settings, prepared)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error(f"speeds are unknown: out of memory: {first_line(error)}; run this again to retry")
            return
        for result in results:
            write_timings(RunFolder.read(folder / result.run), result, timings[result.label])
        write_json_lines(folder)


def forget_timings(folder: Path) -> None:
    """Let ``time_all`` time all models of an experiment again, for example because they were disturbed.

    Raises:
        ValueError: a finished run has no weights, as in a published folder.
    """
    with lock_folder(folder, wait=True):
        timed = [result for result in read_results(folder) if result.timed_together]
        for result in timed:
            if not RunFolder.read(folder / result.run).weights.is_file():
                raise ValueError(f"{folder / result.run} has no weights, so it cannot be timed again")
        for result in timed:
            save_result(folder / result.run, dataclasses.replace(result, timed_together=None))


def results_to_time(folder: Path) -> list[Result]:
    """Find the finished runs of an experiment if all its runs have ended and these were not timed together.

    A run that ended for lack of memory counts as ended: if it is finished later, all are timed again.
    """
    path = folder / "experiment.json"
    planned = read_registry(path)["runs"] if path.is_file() else []
    results = [result for result in read_results(folder) if result.run in planned] if planned else []
    done = [result for result in results if result.status == "done"]
    ids = {result.timed_together for result in done}
    if any(result.status == "unfinished" and result.reason is None for result in results):
        return []
    if len(ids) == 1 and None not in ids:
        return []
    for result in lowest_seeds(done).values():
        if not RunFolder.read(folder / result.run).weights.is_file():
            logger.warning(f"{folder / result.run} has no weights, so the models are not timed together")
            return []
    return done


def _time_models(runs: Sequence[RunFolder], settings: Run, prepared: PreparedData) -> dict[str, Timings]:
    """Time the models of ``runs``; returns their timings by label."""
    inputs = TimingInputs(
        updates={
            parts: [
                batch.parts
                for batch in islice(
                    prepared.stream.global_batches(1, accumulate=parts), settings.bench.updates
                )
            ]
            for parts in {run.run.train.accumulate for run in runs}
        },
        sources=prepared.corpus.splits[prepared.corpus.tests[0]].src,
        bench=settings.bench,
        device=torch.device(settings.train.device),
    )
    torch.manual_seed(settings.train.seed)
    models = [TimedModel(run, inputs) for run in runs]
    works = [model.works() for model in models]
    warm_ups = {"latency": [model.latency.warm_up for model in models]}
    repeats = {
        phase: _time_phase(phase, [each[phase] for each in works], inputs, warm_ups.get(phase))
        for phase in works[0]
    }
    session_id = uuid4().hex[:12]
    return {
        model.run.run.label: model.timings({phase: of[index] for phase, of in repeats.items()}, session_id)
        for index, model in enumerate(models)
    }


def _time_phase(
    name: str, works: Sequence[Workload], inputs: TimingInputs, warm_ups: Sequence[Workload] | None = None
) -> list[list[TimedRepeat]]:
    """Time one kind of work of all models in turn; returns the repeats of each model."""
    repeats: list[list[TimedRepeat]] = [[] for _ in works]
    number = inputs.bench.repeats
    for index, repeat in time_in_turn(works, inputs.device, repeats=number, warm_ups=warm_ups):
        repeats[index].append(repeat)
        if index == len(works) - 1:
            seconds = ", ".join(f"{each[-1].seconds:.2f}" for each in repeats)
            logger.info(f"timing {name}, {len(repeats[index])} of {number}: {seconds} s")
    return repeats


def write_timings(run: RunFolder, result: Result, timings: Timings) -> None:
    """Write the timings into a run's speed.json, and the figures that follow into its result.json."""
    raw = dataclasses.replace(read_speed(run.speed), timings=timings)
    write_speed(run.speed, raw)
    figures = speed_figures(
        raw,
        read_metrics(run.metrics),
        flops=result.train_flops_per_token or 0.0,
        precision=run.run.train.precision,
    )
    files = {**result.files, run.speed.name: hash_file(run.speed)}
    save_result(run.folder, dataclasses.replace(result, files=files, **figures))
