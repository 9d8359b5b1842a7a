"""Inputs of the benchmark, the same for all models: batches to train on and sentences to translate."""

import logging
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from compare.benchmark.plan import BenchPlan
from compare.config.run import Run
from compare.experiment.prepare import prepare_data
from compare.experiment.task import task_of
from data.batch import Batch
from data.encoded_split import EncodedSplit
from data.loader import BatchStream
from data.sequences import Sequences
from data.symbols import SPECIALS

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
    split = task_of(run).select_sides(EncodedSplit(src=src, tgt=tgt, rows=np.arange(pairs), dropped=0))
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
