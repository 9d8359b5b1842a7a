"""Benchmark of an experiment's models from fresh weights: speed, memory and energy, the models in turn."""

import logging
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compare.config.resolve import Run
from compare.decoding.search import SPECIAL, Hypothesis, search
from compare.decoding.translator import for_decoding
from compare.experiment.prepare import prepare_data, sides
from compare.experiment.timing import SearchWork, TrainingWork, first_updates
from compare.models.registry import build, count_weights, train_flops_per_token
from compare.report.table_formats import draw
from compare.results.formatting import DISTURBED, Column, Row, Table, describe_share, format_number
from compare.results.store import json_text
from compare.system.device import set_numerics, tune_cpu
from compare.system.plugins import code_version
from compare.system.timer import (
    Speed,
    TimedRepeat,
    best_reference,
    conditions_of,
    measure_machine,
    move,
    peak_flops,
    time_in_turn,
)
from data.batches import Batch, BatchStream, make_source_batch
from data.encode import EncodedSplit, Sequences
from data.vocabulary import SPECIALS

if TYPE_CHECKING:
    from compare.models.registry import Model

logger = logging.getLogger(__name__)

# Settings of a benchmark.


Phase = Literal["train", "greedy", "beam", "latency"]


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """Phases of a benchmark, and the amount of work per repeat."""

    phases: tuple[Phase, ...] = ("train", "greedy", "beam")
    updates: int = 10
    """Training batches per repeat."""
    repeats: int = 3
    """Timed repeats, after one to warm up."""
    batches: tuple[int, ...] = ()
    """Numbers of sentences decoded together; by default those of ``BATCHES``."""
    steps: int = 20
    """Target tokens of every hypothesis, EOS included."""
    synthetic: float | None = None
    """Mean length in tokens of random sentences; None for the experiment's corpus."""


DEFAULT_PLAN = BenchPlan()
BATCHES = {"cpu": (64,), "cuda": (1, 32, 256)}
"""Numbers of sentences decoded together, by the type of the device."""


def precisions(phase: Phase, train_precision: str) -> tuple[str, ...]:
    """List the precisions of a phase: training in one, decoding in fp32 and that of training."""
    return (train_precision,) if phase == "train" else tuple(dict.fromkeys(("fp32", train_precision)))


def planned_timings(runs: Sequence[Run], plan: BenchPlan = DEFAULT_PLAN) -> list[str]:
    """List the timings of ``run_benchmark``, such as "transformer beam fp32"."""
    return [
        f"{run.label} {phase} {precision}"
        for phase in plan.phases
        for run in runs
        for precision in precisions(phase, run.train.precision)
    ]


# Measurements and their table.


@dataclass(frozen=True, kw_only=True)
class Measurement(Speed):
    """Times of one model in one phase and precision.

    Tokens of train are those of the source without EOS and of the target with EOS; of decoding, those of the
    target with EOS. Padding is never counted.
    """

    model: str
    phase: str
    precision: str
    unit: Literal["tokens/s", "sentences/s", "ms"]
    """Unit of the headline figure; ms are per sentence."""
    params: int
    flops_per_token: float | None = None
    """FLOPs of training per token as counted; None for other phases."""
    joules: float | None = None
    """Energy of all repeats; None if it cannot be read."""
    peak_memory_bytes: int | None = None
    """Peak on a GPU of this model alone; None on a processor."""

    def headline(self, seconds: float) -> float:
        """Compute the figure in ``unit`` of a repeat that took ``seconds``."""
        if self.unit == "ms":
            return 1e3 * seconds / self.sentences
        return (self.tokens if self.unit == "tokens/s" else self.sentences) / seconds

    def with_repeats(self, repeats: Sequence[TimedRepeat]) -> "Measurement":
        """Return a copy with times, energy and memory of ``repeats``."""
        joules = [repeat.joules for repeat in repeats if repeat.joules is not None]
        peaks = [repeat.peak_memory_bytes for repeat in repeats if repeat.peak_memory_bytes is not None]
        return replace(
            self,
            seconds=[repeat.seconds for repeat in repeats],
            joules=sum(joules) if len(joules) == len(repeats) else None,
            peak_memory_bytes=max(peaks, default=None),
            **conditions_of(repeats),
        )

    def row(self, conditions: Mapping[str, Any]) -> Row:
        """Return the figures of a row of the table by ``COLUMNS``; unknown ones are None."""
        figures = [self.headline(seconds) for seconds in self.seconds]
        peaks = {
            "mfu": peak_flops(conditions["device"], self.precision),
            "product_share": 1e9 * (conditions.get(f"{self.precision}_gflops") or 0.0),
        }
        flops_per_s = self.tokens_per_s * (self.flops_per_token or 0.0)
        tokens = self.tokens * len(figures)
        return {
            **{column.name: getattr(self, column.name, None) for column in COLUMNS},
            "median": self.headline(statistics.median(self.seconds)),
            "median_low": min(figures),
            "median_high": max(figures),
            "repeats": len(figures),
            "machine_speed": conditions["best_reference_s"] / statistics.median(self.reference_s),
            **{name: flops_per_s / peak if flops_per_s and peak else None for name, peak in peaks.items()},
            "joules": None if self.joules is None else 1e3 * self.joules / tokens,
        }


def figure(value: float) -> str:
    """Format a float with three significant digits or all of its integer part."""
    return format_number(value, digits=3)


OPERATIONS = (
    "FLOPs of training per token (3 times those of the forward pass's matrix products) x tokens/s over"
)
# fmt: off
COLUMNS = (
    Column("model", "model", left=True),
    Column("phase", "phase", "forced: every hypothesis has exactly `steps` tokens", left=True),
    Column("precision", "precision", left=True),
    Column("median", "median", "with lowest and highest, of the repeats, which the models do in turn after "
        "warming up", spread=True, form=figure),
    Column("unit", "unit", left=True),
    Column("tokens_per_s", "tokens/s", form=figure),
    Column("product_share", "share of products", f"{OPERATIONS} the measured speed of a large product of "
        "that precision", unit="%", decimals=0),
    Column("mfu", "MFU", f"{OPERATIONS} the data sheet's peak of that precision without sparsity; none for "
        "processors", unit="%", decimals=0),
    Column("repeats", "repeats"),
    Column("cpu_share", "CPU share", "share of the processor during the timing, the median over its "
        f"repeats; disturbed below {DISTURBED:.0%}", form=describe_share),
    Column("machine_speed", "machine speed", "of a fixed piece of work after each repeat, relative to its "
        "best on this machine so far", form=describe_share),
    Column("sentences", "sentences", "of a repeat, decoded together except for the latency"),
    Column("tokens", "tokens", "of a repeat; train counts the source's without and the target's with end of "
        "sentence, decoding the target's; padding never"),
    Column("params", "params", unit="M", decimals=2),
    Column("peak_memory_bytes", "peak memory", "on a GPU, of each model alone", unit="GB", decimals=2),
    Column("joules", "J / 1k tokens", form=figure),
)
# fmt: on
"""Columns of the table; those without any figure are left out."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """Measurements of a benchmark and their conditions."""

    rows: list[Measurement]
    conditions: Mapping[str, Any]

    def to_json(self) -> str:
        """Serialise to JSON."""
        return json_text(self) + "\n"

    def render(self, width: int | None = None) -> str:
        """Render a table of the measurements (see ``draw``), and what its columns and conditions are."""
        rows = [row.row(self.conditions) for row in self.rows]
        columns = [column for column in COLUMNS if any(row[column.name] is not None for row in rows)]
        facts = [f"{name} {value}" for name, value in self.conditions.items() if value is not None]
        notes = [f"{column.title}: {column.help}" for column in columns if column.help]
        return draw(Table("", rows, layout=columns, conditions=[*notes, ", ".join(facts)]), width)


# Inputs, the same for all models: batches to train on and sentences to translate.


LENGTH_SHAPE, LENGTH_NOISE = 3.0, 0.15
"""Random lengths: shape of their gamma distribution, and relative standard deviation of each side."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Token ids of a corpus, or random ones."""

    updates: list[Sequence[Batch]]
    """The batch of each update, in the parts in which it is computed."""
    sources: list[list[int]]
    """Sentences to translate, without EOS."""
    vocabulary_sizes: tuple[int, int]

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean tokens per source and per target of training, EOS included."""
        batches = list(chain.from_iterable(self.updates))
        sentences = sum(map(len, batches))
        src = sum(batch.src_tokens for batch in batches) / sentences + 1
        return src, sum(batch.tgt_tokens for batch in batches) / sentences


def make_inputs(run: Run, plan: BenchPlan) -> Inputs:
    """Take the first batches of the first epoch, and sentences of the first test set, repeated if too few.

    Raises:
        ValueError: the corpus cannot be used.
    """
    if plan.synthetic is not None:
        return _random_inputs(run, plan, plan.synthetic)
    with TemporaryDirectory() as folder:
        prepared = prepare_data(run, Path(folder))
        lines = prepared.corpus.splits[prepared.corpus.tests[0]].src
        return Inputs(
            updates=first_updates(prepared.stream, plan.updates, run.train.accumulate),
            sources=prepared.vocabularies.src.encode_all(list(islice(cycle(lines), max(plan.batches)))),
            vocabulary_sizes=(len(prepared.vocabularies.src), len(prepared.vocabularies.tgt)),
        )


def _random_inputs(run: Run, plan: BenchPlan, mean: float) -> Inputs:
    train, size = run.train, run.vocabulary.size
    if run.regularization.subword_sampling:
        logger.warning("random ids have one segmentation: regularization.subword_sampling is not used")
    rng = np.random.default_rng(train.seed)
    sentences = max(plan.batches)
    pairs = sentences + int(2 * plan.updates * train.batch_tokens / mean)
    lengths = rng.gamma(LENGTH_SHAPE, mean / LENGTH_SHAPE, pairs)
    longest = min(run.data.max_tokens, train.batch_tokens - 1)
    src, tgt = (
        _random_sentences(rng, lengths * rng.normal(1, LENGTH_NOISE, pairs), longest, size) for _ in range(2)
    )
    split = sides(EncodedSplit(src=src, tgt=tgt, rows=np.arange(pairs), dropped=0), run)
    stream = BatchStream(split, batch_tokens=train.batch_tokens, seed=train.seed)
    return Inputs(
        updates=first_updates(stream, plan.updates, train.accumulate),
        sources=[src.take(np.array([index])).flat.tolist() for index in range(sentences)],
        vocabulary_sizes=(size, size),
    )


def _random_sentences(
    rng: np.random.Generator, lengths: NDArray[np.float64], longest: int, size: int
) -> Sequences:
    """Draw sentences of about these lengths, from 1 to ``longest``, with ids below ``size``."""
    whole = lengths.round().clip(1, longest).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(whole)])
    return Sequences(rng.integers(len(SPECIALS), size, offsets[-1], dtype=np.int32), offsets)


# Search of a forced length, so that the cost of a batch does not depend on the weights.
#
# Natural lengths need a trained model; the results of a run hold the speed of decoding those.


IMPOSSIBLE = -1e4
"""Logit far below all others, representable in fp32 and bf16."""


def force_length(model: "Model") -> None:
    """Make EOS impossible before a hypothesis's limit, by the output bias; put the model in eval mode."""
    output = model.eval().output
    bias = torch.zeros_like(output.weight[:, 0]) if output.bias is None else output.bias.detach()
    bias[SPECIAL.eos] = IMPOSSIBLE
    output.bias = nn.Parameter(bias)


def search_forced(
    model: "Model", src: Tensor, src_mask: Tensor, *, steps: int, beam_size: int
) -> list[Hypothesis]:
    """Run the beam search of translation with hypotheses of exactly ``steps`` tokens, EOS included.

    The model is prepared by ``force_length``. There is no length penalty: hypotheses do not differ in length.
    """
    limits = torch.full((src.size(0),), steps - 1)
    return search(model, src, src_mask, limits=limits, special=SPECIAL, beam_size=beam_size)


# Workloads of one model in each phase, and their timing.


class Task(NamedTuple):
    """A workload, and its measurement without times."""

    measurement: Measurement
    work: TrainingWork | SearchWork


def make_tasks(run: Run, plan: BenchPlan, inputs: Inputs, phase: Phase) -> Iterator[Task]:
    """Make the tasks of a model in one phase: by precision and, in greedy and beam search, batch size."""
    batches = plan.batches if phase in ("greedy", "beam") else (max(plan.batches),)
    for precision in precisions(phase, run.train.precision):
        for size in batches:
            task = make_task(run, plan, replace(inputs, sources=inputs.sources[:size]), phase, precision)
            move(task.work.holders, torch.device("cpu"))
            yield task


def make_task(run: Run, plan: BenchPlan, inputs: Inputs, phase: Phase, precision: str) -> Task:
    """Build the model of ``run`` with fresh weights, and its work in one phase."""
    device, beam = torch.device(run.train.device), run.decode.beam_size
    torch.manual_seed(run.train.seed)
    model: Model = build(run.model.architecture, *inputs.vocabulary_sizes).to(device)
    facts: dict[str, Any] = {"model": run.label, "precision": precision, "seconds": []}
    facts["params"] = count_weights(model)
    if phase == "train":
        training = TrainingWork(run, model, inputs.updates)
        src_len, tgt_len = inputs.mean_lengths
        flops = train_flops_per_token(
            run.model.architecture,
            src_len=src_len,
            tgt_len=tgt_len,
            tgt_vocabulary=inputs.vocabulary_sizes[1],
            passes=run.regularization.passes,
        )
        facts |= {"sentences": training.sentences, "tokens": training.tokens, "flops_per_token": flops}
        measured = Measurement(**facts, phase=phase, unit="tokens/s")
        return Task(measured, training)
    ids = [inputs.sources]
    match phase:
        case "greedy":
            facts |= {"phase": "forced greedy", "unit": "sentences/s"}
            beam = 1
        case "beam":
            facts |= {"phase": f"forced beam {beam}", "unit": "sentences/s"}
        case "latency":
            facts |= {"phase": f"forced latency, beam {beam}", "unit": "ms"}
            ids = [[sentence] for sentence in inputs.sources[: run.bench.latency_sentences]]
    force_length(model)
    model = for_decoding(model, precision)
    batches = [[part.to(device) for part in make_source_batch(batch)] for batch in ids]

    forced = partial(search_forced, model, steps=plan.steps, beam_size=beam)
    decode = SearchWork([partial(forced, src, mask) for src, mask in batches], device, model)
    sentences = sum(map(len, ids))
    return Task(Measurement(**facts, sentences=sentences, tokens=sentences * plan.steps), decode)


def _log_repeat(tasks: Sequence[Task], repeats: int, index: int, number: int, repeat: TimedRepeat) -> None:
    timed = tasks[index].measurement
    headline = f"{figure(timed.headline(repeat.seconds))} {timed.unit}"
    turn = f"{timed.model} {timed.phase} {timed.precision}, round {number}"
    logger.info(f"{turn} of {repeats}: {headline}")


def run_benchmark(runs: Sequence[Run], plan: BenchPlan = DEFAULT_PLAN) -> BenchmarkResult:
    """Time all models in all phases of ``plan``.

    Args:
        runs: one run per model, with the same data, device and precision; see ``resolve_models``.
        plan: the phases and their amount of work.

    Raises:
        ValueError: bad data, or too few batches.
    """
    train = runs[0].train
    tune_cpu(batch_tokens=train.batch_tokens)
    device = torch.device(train.device)
    set_numerics(device, deterministic=train.deterministic)
    plan = replace(plan, batches=plan.batches or BATCHES[device.type])
    inputs = make_inputs(runs[0], plan)
    if (available := len(inputs.updates)) < plan.updates:
        raise ValueError(
            f"an epoch has {available} batches, but --updates is {plan.updates}: lower train.batch_tokens"
        )
    rows: list[Measurement] = []
    all_repeats: list[TimedRepeat] = []
    for phase in plan.phases:
        tasks = [task for run in runs for task in make_tasks(run, plan, inputs, phase)]
        timed_repeats = time_in_turn(
            [task.work for task in tasks],
            device,
            repeats=plan.repeats,
            seconds=runs[0].bench.seconds,
            name=f"timing {phase}",
            report=partial(_log_repeat, tasks, plan.repeats),
        )
        rows += [
            task.measurement.with_repeats(repeats) for task, repeats in zip(tasks, timed_repeats, strict=True)
        ]
        all_repeats += chain.from_iterable(timed_repeats)
    machine = measure_machine(device, all_repeats)
    reference = min(statistics.median(row.reference_s) for row in rows)
    amounts = {name: value for name, value in asdict(plan).items() if name not in ("phases", "repeats")}
    return BenchmarkResult(
        rows=rows,
        conditions={
            **{name: round(v) if isinstance(v, float) else v for name, v in asdict(machine).items()},
            "batch_tokens": train.batch_tokens,
            "seconds_per_repeat": runs[0].bench.seconds,
            "best_reference_s": round(best_reference(machine, reference), 6),
            **amounts,
            "python": platform.python_version(),
            "code": code_version(),
        },
    )
