"""Timing of all models of an experiment in turn, after the last of its runs has ended."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch

from compare.config.run import Run
from compare.config.sections import BenchConfig
from compare.decoding.translator import DecodingWork, LatencyWork
from compare.experiment.folder import lowest_seeds
from compare.experiment.prepare import PreparedData
from compare.experiment.task import task_of
from compare.models.registry import build
from compare.optim import build_optimizer
from compare.results.columns import SPREAD_ENDS, SPREADS
from compare.results.records import Latency, RawSpeed, Session, Timings, read_speed, write_record
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_registry, read_results, save_result, write_json_lines
from compare.results.trained_model import load_model
from compare.system.device import Machine, precision_of, set_numerics, this_machine
from compare.system.measure import (
    Speed,
    TimedRepeat,
    Workload,
    is_out_of_memory,
    peak_flops,
    percentile,
    time_in_turn,
)
from compare.system.messages import first_line
from compare.system.signals import lock_folder
from compare.training.loss import TranslationLoss
from compare.training.metrics_log import read_metrics
from compare.training.step import count_tokens, training_work
from data.batches import Batch
from data.files import hash_file

if TYPE_CHECKING:
    from compare.models.registry import Model

# Compute the figures of speed from the timed repeats of a run.


Figures = dict[str, Any]
"""Fields of ``Result`` by name."""
MIN_PERCENTILE_SENTENCES = 100
"""Sentences from which the 95th percentile of latency is known: five of a hundred are above it."""
TIMED = (
    *SPREADS,
    *SPREAD_ENDS,
    *("train_tgt_tokens_per_s", "train_mfu", "decode_tokens_per_s", "latency_ms_p95"),
    *("cpu_share", "decode_precision", "timed_together"),
)
"""Fields that are unknown before timing."""


def speed_figures(
    raw: RawSpeed, metrics: Sequence[Mapping[str, Any]], *, flops: float, precision: str
) -> Figures:
    """Compute medians, spreads and percentiles of the timed repeats.

    Args:
        raw: content of speed.json.
        metrics: lines of the training log.
        flops: FLOPs of training per token.
        precision: precision of training.

    Returns:
        All fields of speed, None where it was not timed, and the machine of the timing.
    """
    costs = {"decode_s": raw.decode_s, "peak_memory_bytes": raw.peak_memory_bytes}
    figures: Figures = {**dict.fromkeys(TIMED), **costs}
    timings = raw.timings
    if timings is None:
        return figures
    figures |= _search_figures(timings)
    logged, tgt_share = log_speed(metrics)
    if timings.train is None or timings.session is None:  # an earlier version timed each run alone
        return {**figures, "train_tokens_per_s": logged, "train_tgt_tokens_per_s": logged * tgt_share}
    train, session = timings.train, timings.session
    peak = peak_flops(session.device, precision)
    timed = (timings.latency, train, timings.greedy, timings.beam)
    shares = [work.cpu_share for work in timed if work is not None]
    figures |= {item.name: getattr(session, item.name) for item in fields(Machine)}
    figures |= _spread("train_tokens_per_s", [train.tokens / each for each in train.seconds])
    for name, speed in (("greedy", timings.greedy), ("beam", timings.beam)):
        if speed is not None:
            figures |= _spread(f"{name}_sentences_per_s", [speed.sentences / each for each in speed.seconds])
    return {
        **figures,
        "train_tokens_per_s": train.tokens_per_s,
        "train_tgt_tokens_per_s": train.tokens_per_s * tgt_share,
        "train_mfu": None if peak is None else train.tokens_per_s * flops / peak,
        "cpu_share": min((share for share in shares if share is not None), default=None),
        "decode_precision": None if timings.beam is None else session.decode_precision,
        "timed_together": session.timed_together,
    }


def _search_figures(timings: Timings) -> Figures:
    """Compute the speeds of search; none of a model that does not search."""
    greedy, beam, latency = timings.greedy, timings.beam, timings.latency
    if greedy is None or beam is None or latency is None:
        return {}
    medians = [percentile(repeat, 0.5) for repeat in latency.ms]
    figures = {
        "greedy_sentences_per_s": greedy.sentences_per_s,
        "beam_sentences_per_s": beam.sentences_per_s,
        "decode_tokens_per_s": beam.tokens_per_s,
        "latency_ms_p50": median(medians),
    }
    if timings.session is None:  # an earlier version timed each run alone
        return figures
    return {**figures, **_spread("latency_ms_p50", medians), "latency_ms_p95": _p95(latency)}


def log_speed(metrics: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Compute the speed of the training itself.

    Args:
        metrics: lines of the training log.

    Returns:
        The median tokens per second over the lines, and the share of target tokens.
    """
    windows = [line for line in metrics if line["kind"] == "train"]
    steady = windows[1:] or windows  # the first line includes start-up
    tgt_tokens = sum(line["tgt_tokens"] for line in steady)
    tokens = tgt_tokens + sum(line["src_tokens"] for line in steady)
    return percentile([line["tokens_per_s"] for line in steady], 0.5), tgt_tokens / tokens


def _p95(latency: Latency) -> float | None:
    """Compute the 95th percentile of the sentences, the median over the repeats; None for few sentences."""
    if len(latency.ms[0]) < MIN_PERCENTILE_SENTENCES:
        return None
    return median(percentile(repeat, 0.95) for repeat in latency.ms)


def _spread(name: str, values: Sequence[float]) -> Figures:
    """Return the lowest and the highest repeat; None for a single repeat, which has no spread."""
    low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


# Workloads of timing one trained model, and the timings that their repeats give.


@dataclass(frozen=True, kw_only=True)
class TimingInputs:
    """Inputs of the timings, the same for all models."""

    updates: Mapping[int, Sequence[Sequence[Batch]]]
    """The training batches of one repeat, by ``train.accumulate``, the number of parts that each is in."""
    sources: Sequence[str]
    """Source sentences of the first test set."""
    bench: BenchConfig
    """Amounts of work."""
    device: torch.device


def update_work(run: Run, model: "Model", updates: Sequence[Sequence[Batch]]) -> Workload:
    """Make the work of updates of a model with any weights, at the last learning rate of training.

    The optimizer is a new one: its cost does not depend on its state. A moving average is not part of it.

    Args:
        run: its settings.
        model: the model, on the device of the run.
        updates: the batch of each update, in the parts whose gradients are added.
    """
    train, optim = run.train, run.model.optim
    criterion = TranslationLoss(model, train.label_smoothing, run.regularization)
    optimizer = build_optimizer(criterion.parameters(), optim)
    for group in optimizer.param_groups:
        group["lr"] = optim.learning_rate_at(train.max_updates, train.max_updates)
    return training_work(criterion, optimizer, updates, precision=train.precision, clip_norm=train.clip_norm)


def fresh_update_work(run: Run, prepared: PreparedData, updates: Sequence[Sequence[Batch]]) -> Workload:
    """Make the same of a model with fresh weights, before its run."""
    device = torch.device(run.train.device)
    set_numerics(device, deterministic=run.train.deterministic)
    return update_work(run, build(run.model.architecture, *prepared.vocabulary_sizes).to(device), updates)


class TimedModel:
    """A trained model and the workloads that are timed: training, greedy and beam search, latency."""

    def __init__(self, run: RunFolder, inputs: TimingInputs) -> None:
        """Load the weights of ``run``.

        Raises:
            ValueError: the weights are damaged or of another model.
        """
        self.run, self.inputs, bench = run, inputs, inputs.bench
        translator = load_model(run.folder, str(inputs.device))
        self.decode_precision = precision_of(translator.model)
        beam_size, sources = translator.decode.beam_size, inputs.sources
        self.greedy = DecodingWork(translator, sources[: bench.sentences], 1)
        self.beam = DecodingWork(translator, sources[: bench.sentences], beam_size)
        self.latency = LatencyWork(translator, sources[: bench.latency_sentences], beam_size)
        self.train = update_work(run.run, translator.model, inputs.updates[run.run.train.accumulate])

    def works(self) -> dict[str, Workload]:
        """Return the workloads by name, in the order of timing; of a language model training alone."""
        if not task_of(self.run.run).translates:
            return {"train": self.train}
        return {"greedy": self.greedy, "beam": self.beam, "latency": self.latency, "train": self.train}

    def timings(self, repeats: dict[str, Sequence[TimedRepeat]], session_id: str) -> Timings:
        """Combine the repeats of each kind of work that ``works`` names."""
        batches = list(chain.from_iterable(self.inputs.updates[self.run.run.train.accumulate]))
        latency = None
        if "latency" in repeats:
            shares = [repeat.cpu_share for repeat in repeats["latency"]]
            latency = Latency(ms=self.latency.ms, cpu_shares=shares)
        return Timings(
            train=_speed(repeats["train"], sum(map(len, batches)), count_tokens(batches)),
            greedy=_search_speed(repeats.get("greedy"), self.greedy),
            beam=_search_speed(repeats.get("beam"), self.beam),
            latency=latency,
            session=Session(
                **asdict(this_machine(self.inputs.device)),
                timed_together=session_id,
                timed_run=self.run.name,
                decode_precision=self.decode_precision,
            ),
        )


def _search_speed(repeats: Sequence[TimedRepeat] | None, work: DecodingWork) -> Speed | None:
    """Combine the repeats of a search; None if it was not timed."""
    return None if repeats is None else _speed(repeats, len(work.lines), work.tokens)


def _speed(repeats: Sequence[TimedRepeat], sentences: int, tokens: int) -> Speed:
    """Combine the repeats of work on this many sentences and tokens."""
    return Speed(
        sentences=sentences,
        tokens=tokens,
        seconds=[repeat.seconds for repeat in repeats],
        cpu_shares=[repeat.cpu_share for repeat in repeats],
    )


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
    write_record(run.speed, raw)
    figures = speed_figures(
        raw,
        read_metrics(run.metrics),
        flops=result.train_flops_per_token or 0.0,
        precision=run.run.train.precision,
    )
    files = {**result.files, run.speed.name: hash_file(run.speed)}
    save_result(run.folder, dataclasses.replace(result, files=files, **figures))
