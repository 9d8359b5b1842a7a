"""Plan and inputs of a benchmark, and the workloads of one model in each phase."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compare.benchmark.measurement import Measurement, Unit
from compare.config.run import Run
from compare.decoding.search import SPECIAL, Hypothesis, search
from compare.experiment.prepare import prepare_data, sides
from compare.models.registry import build, train_flops_per_token
from compare.system.cpu import for_decoding
from compare.system.measure import Workload
from compare.system.messages import did_you_mean
from compare.training.step import TrainingWork
from data.batches import Batch, BatchStream, make_source_batch
from data.encode import EncodedSplit, Sequences
from data.symbols import SPECIALS

if TYPE_CHECKING:
    from compare.models.registry import Model


# Settings of a benchmark.


Phase = Literal["train", "greedy", "beam", "latency", "encode"]
PHASES: tuple[Phase, ...] = get_args(Phase)
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """Phases of a benchmark, and the amount of work per repeat."""

    phases: tuple[Phase, ...] = ("train", "greedy", "beam")
    """Some of train, greedy, beam, latency and encode."""
    updates: int = 10
    """Training batches per repeat of train or encode."""
    repeats: int = 3
    """Timed repeats, after one to warm up."""
    batch: int = 64
    """Sentences decoded as one batch."""
    steps: int = 20
    """Target tokens of every hypothesis, EOS included."""
    synthetic: float | None = None
    """Mean length in tokens of random sentences; None for the experiment's corpus."""

    @property
    def amounts(self) -> dict[str, Any]:
        """Amount of work per repeat."""
        return {name: getattr(self, name) for name in ("updates", "batch", "steps", "synthetic")}


def parse_choices(option: str, text: str, known: Sequence[Name]) -> tuple[Name, ...]:
    """Parse a list of names such as "train,beam".

    Args:
        option: the command line option, for the error message.
        text: its value.
        known: the names allowed.

    Returns:
        The names listed, in the order of ``known``.

    Raises:
        ValueError: ``text`` holds an unknown name.
    """
    names = text.split(",")
    for name in names:
        if name not in known:
            raise ValueError(f"{option} {text}: no {name!r}; {did_you_mean(name, known)}")
    return tuple(name for name in known if name in names)


# Inputs of the benchmark, the same for all models: batches to train on and sentences to translate.


logger = logging.getLogger(__name__)

LENGTH_SHAPE, LENGTH_NOISE = 3.0, 0.15
"""Random lengths: shape of their gamma distribution, and relative standard deviation of each side."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Token ids of a corpus, or random ones."""

    batches: list[Batch]
    sources: list[list[int]]
    """Sentences to translate, without EOS."""
    vocabulary_sizes: tuple[int, int]

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean tokens per source and per target in ``batches``, EOS included."""
        sentences = sum(len(batch) for batch in self.batches)
        src = sum(batch.src_tokens for batch in self.batches) / sentences + 1
        return src, sum(batch.tgt_tokens for batch in self.batches) / sentences


def make_inputs(run: Run, plan: BenchPlan) -> Inputs:
    """Take the first batches of the first epoch, and sentences of the first test set, repeated if too few.

    Raises:
        ValueError: the corpus cannot be used, or an epoch has too few batches.
    """
    if plan.synthetic is not None:
        return _random_inputs(run, plan, plan.synthetic)
    with TemporaryDirectory() as folder:
        prepared = prepare_data(run, Path(folder))
        lines = prepared.corpus.splits[prepared.corpus.tests[0]].src
        return Inputs(
            batches=_first_batches(prepared.stream, plan.updates),
            sources=prepared.vocabularies.src.encode_all(list(islice(cycle(lines), plan.batch))),
            vocabulary_sizes=(len(prepared.vocabularies.src), len(prepared.vocabularies.tgt)),
        )


def _random_inputs(run: Run, plan: BenchPlan, mean: float) -> Inputs:
    """Draw random ids of a vocabulary of the configured size, in sentences of ``mean`` tokens on average."""
    train, size = run.train, run.vocabulary.size
    if run.regularization.subword_sampling:
        logger.warning("random ids have one segmentation: regularization.subword_sampling is not used")
    rng = np.random.default_rng(train.seed)
    pairs = plan.batch + int(2 * plan.updates * train.batch_tokens / mean)
    lengths = rng.gamma(LENGTH_SHAPE, mean / LENGTH_SHAPE, pairs)
    longest = min(run.data.max_tokens, train.batch_tokens - 1)
    src, tgt = (
        _random_sentences(rng, lengths * rng.normal(1, LENGTH_NOISE, pairs), longest, size) for _ in range(2)
    )
    split = sides(EncodedSplit(src=src, tgt=tgt, rows=np.arange(pairs), dropped=0), run)
    stream = BatchStream(split, batch_tokens=train.batch_tokens, seed=train.seed)
    return Inputs(
        batches=_first_batches(stream, plan.updates),
        sources=[src.take(np.array([index])).flat.tolist() for index in range(plan.batch)],
        vocabulary_sizes=(size, size),
    )


def _random_sentences(
    rng: np.random.Generator, lengths: NDArray[np.float64], longest: int, size: int
) -> Sequences:
    """Draw sentences of about these lengths, from 1 to ``longest``, with ids below ``size``."""
    whole = lengths.round().clip(1, longest).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(whole)])
    return Sequences(rng.integers(len(SPECIALS), size, offsets[-1], dtype=np.int32), offsets)


def _first_batches(stream: BatchStream, updates: int) -> list[Batch]:
    """Take the first ``updates`` batches of the first epoch."""
    batches = list(islice(stream.epoch(1), updates))
    if len(batches) < updates:
        raise ValueError(
            f"an epoch has {len(batches)} batches, too few for --updates {updates}: lower train.batch_tokens"
        )
    return batches


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

    A length penalty would change nothing: it only decides between hypotheses of different length.

    Args:
        model: one prepared by ``force_length``.
        src: source ids (B, S).
        src_mask: True at real tokens (B, S).
        steps: tokens of every hypothesis, at least 1.
        beam_size: hypotheses per sentence.

    Returns:
        The best hypothesis of each sentence.
    """
    limits = torch.full((src.size(0),), steps - 1)
    return search(model, src, src_mask, limits=limits, special=SPECIAL, beam_size=beam_size)


# Workloads of one model in each phase: training, search of a forced length, encoding.


class Task(NamedTuple):
    """A workload, and its measurement, which has no times yet."""

    measurement: Measurement
    work: Workload
    holders: tuple[nn.Module | torch.optim.Optimizer, ...]
    """What keeps tensors between the repeats: the model, and the optimizer in training."""


class Candidate:
    """One model with fresh weights, and its inputs."""

    def __init__(self, run: Run, plan: BenchPlan, inputs: Inputs) -> None:
        self.run, self.plan, self.inputs = run, plan, inputs
        self.device = torch.device(run.train.device)
        torch.manual_seed(run.train.seed)
        self.model: Model = build(run.model.architecture, *inputs.vocabulary_sizes).to(self.device)
        self.params = sum(parameter.numel() for parameter in self.model.parameters())

    def tasks(self, phase: Phase) -> list[Task]:
        """Make the tasks of a phase, one per precision."""
        return [self._task(phase, precision) for precision in precisions(phase, self.run.train.precision)]

    def _task(self, phase: Phase, precision: str) -> Task:
        beam, sources = self.run.decode.beam_size, self.inputs.sources
        match phase:
            case "train":
                return self._training(precision)
            case "encode":
                return self._encoding(precision)
            case "greedy":
                return self._searching("forced greedy", "sentences/s", precision, [sources], 1)
            case "beam":
                return self._searching(f"forced beam {beam}", "sentences/s", precision, [sources], beam)
            case "latency":
                alone = [[ids] for ids in sources[: self.run.bench.latency_sentences]]
                return self._searching(f"forced latency, beam {beam}", "ms", precision, alone, beam)

    def _training(self, precision: str) -> Task:
        """Train on all batches once per repeat."""
        work = TrainingWork(self.run, self.model, [[batch] for batch in self.inputs.batches], precision)
        measured = self._measurement("train", "tokens/s", precision, work.sentences, work.tokens)
        src_len, tgt_len = self.inputs.mean_lengths
        flops = train_flops_per_token(
            self.run.model.architecture,
            src_len=src_len,
            tgt_len=tgt_len,
            tgt_vocabulary=self.inputs.vocabulary_sizes[1],
            passes=self.run.regularization.passes,
        )
        return Task(replace(measured, flops_per_token=flops), work, (self.model, work.optimizer))

    def _encoding(self, precision: str) -> Task:
        """Run only the encoder on the batches' sources."""
        batches = [batch.to(self.device) for batch in self.inputs.batches]
        model = for_decoding(self.model.eval(), precision)

        @torch.inference_mode()
        def encode() -> None:
            for batch in batches:
                model.encode(batch.src, batch.src_mask)

        tokens = sum(batch.src_tokens for batch in batches)
        measured = self._measurement("encode", "tokens/s", precision, sum(map(len, batches)), tokens)
        return Task(measured, encode, (model,))

    def _searching(
        self, name: str, unit: Unit, precision: str, batches: Sequence[Sequence[list[int]]], beam_size: int
    ) -> Task:
        """Search batches of sources with a forced length."""
        force_length(self.model)
        model = for_decoding(self.model, precision)
        sources = [[part.to(self.device) for part in make_source_batch(batch)] for batch in batches]

        def work() -> None:
            for src, mask in sources:
                search_forced(model, src, mask, steps=self.plan.steps, beam_size=beam_size)

        sentences = sum(map(len, batches))
        measured = self._measurement(name, unit, precision, sentences, sentences * self.plan.steps)
        return Task(measured, work, (model,))

    def _measurement(
        self, phase: str, unit: Unit, precision: str, sentences: int, tokens: int
    ) -> Measurement:
        """Make a measurement without times; sentences and tokens are those of one repeat."""
        return Measurement(
            model=self.run.label,
            phase=phase,
            precision=precision,
            unit=unit,
            params=self.params,
            flops_per_token=None,
            sentences=sentences,
            tokens=tokens,
            seconds=[],
        )


def precisions(phase: Phase, train_precision: str) -> tuple[str, ...]:
    """List the precisions of a phase: training in its own, decoding in fp32, and in bf16 if training is."""
    return (train_precision,) if phase == "train" else tuple(dict.fromkeys(("fp32", train_precision)))
