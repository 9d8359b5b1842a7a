"""What the models are timed on: batches to train on and sentences to translate, the same for all."""

from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from compare.benchmark.plan import BenchPlan
from compare.config.sections import Experiment
from compare.experiment.prepare import prepare_data
from data.batch import Batch
from data.encoded_split import EncodedSplit, Sequences
from data.loader import BatchStream
from data.symbols import SPECIALS

SHAPE, OFF = 3.0, 0.15
"""Drawn lengths: the shape of their gamma distribution, and the share by which each side is off them."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Ids alone; nothing here knows whether they were words."""

    batches: list[Batch]
    sources: list[list[int]]
    """Sentences to translate, without EOS."""
    vocabulary_sizes: tuple[int, int]

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Tokens of a source and of a target in ``batches``, EOS included."""
        sentences = sum(len(batch) for batch in self.batches)
        src = sum(batch.src_tokens for batch in self.batches) / sentences + 1
        return src, sum(batch.tgt_tokens for batch in self.batches) / sentences


def make_inputs(experiment: Experiment, plan: BenchPlan) -> Inputs:
    """The first batches of the first epoch, and the first sentences of the first test set, again if need be.

    Raises:
        ValueError: the corpus cannot be used, or an epoch has too few batches.
    """
    if plan.synthetic is not None:
        return _drawn(experiment, plan, plan.synthetic)
    with TemporaryDirectory() as folder:
        prepared = prepare_data(experiment, Path(folder))
        lines = prepared.corpus.splits[prepared.corpus.tests[0]].src
        return Inputs(
            batches=_first(prepared.stream, plan.updates),
            sources=prepared.vocabularies.src.encode_all(list(islice(cycle(lines), plan.batch))),
            vocabulary_sizes=(len(prepared.vocabularies.src), len(prepared.vocabularies.tgt)),
        )


def _drawn(experiment: Experiment, plan: BenchPlan, mean: float) -> Inputs:
    """Ids drawn at random from a vocabulary of the size asked for, in sentences of ``mean`` tokens."""
    train, size = experiment.train, experiment.vocabulary.size
    rng = np.random.default_rng(train.seed)
    pairs = plan.batch + int(2 * plan.updates * train.batch_tokens / mean)
    lengths = rng.gamma(SHAPE, mean / SHAPE, pairs)
    longest = min(experiment.data.max_tokens, train.batch_tokens - 1)
    src, tgt = (_sentences(rng, lengths * rng.normal(1, OFF, pairs), longest, size) for _ in range(2))
    split = EncodedSplit(src=src, tgt=tgt, rows=np.arange(pairs), dropped=0)
    stream = BatchStream(split, batch_tokens=train.batch_tokens, seed=train.seed)
    return Inputs(
        batches=_first(stream, plan.updates),
        sources=[src.take(np.array([row])).flat.tolist() for row in range(plan.batch)],
        vocabulary_sizes=(size, size),
    )


def _sentences(rng: np.random.Generator, lengths: NDArray[np.float64], longest: int, size: int) -> Sequences:
    """Sentences of about these lengths, from 1 to ``longest``, and of ids below ``size``."""
    whole = lengths.round().clip(1, longest).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(whole)])
    return Sequences(rng.integers(len(SPECIALS), size, offsets[-1], dtype=np.int32), offsets)


def _first(stream: BatchStream, updates: int) -> list[Batch]:
    """The first ``updates`` batches of an epoch."""
    batches = list(islice(stream.epoch(1), updates))
    if len(batches) < updates:
        raise ValueError(
            f"an epoch has {len(batches)} batches, too few for --updates {updates}: lower train.batch_tokens"
        )
    return batches
