"""A training split whose text is segmented anew for each epoch."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

import numpy as np

from data.encode import CHUNK_PAIRS
from data.encoded_split import EncodedSplit
from data.parallel import Worker, map_blocks, worker_count
from data.sequences import Ints, Sequences
from data.subword_sampling import SubwordSampler, build_sampler
from data.vocabulary import VocabularyPair

logger = logging.getLogger(__name__)

PAIRS_PER_WORKER = 5_000
"""Pairs for which a worker is worth its start; fewer are drawn in half a second."""
MAX_WORKERS = 4
"""Workers that draw the next epoch."""
NICE = 10
"""Lowered priority of the workers that draw the next epoch, for training's sake."""

Block = tuple[int, Ints, Sequences, Sequences]
"""Number of the epoch, and of some pairs the rows, sources and targets."""
Sides = tuple[Sequences, Sequences]
"""Sources and targets."""


class SampledSplit:
    """A split with random segmentations, which are a function of (text, vocabulary, seed, epoch, row) alone.

    The text comes from the ids, so that a process that reads no text can draw as well. A side of a pair that
    would have more than ``max_tokens`` ids keeps those of the split.

    Args:
        split: the encoded pairs, which stay as they are.
        vocabularies: those that they were encoded with, "bpe" or "unigram".
        strength: as for ``data.subword_sampling.build_sampler``.
        seed: seed of the draws, together with the epoch and the index of the pair in the corpus.
        max_tokens: upper bound on the ids per side, EOS not counted; that of ``encode_split``.

    Raises:
        ValueError: the vocabularies have one segmentation per text, or the strength is not possible.
    """

    def __init__(
        self,
        split: EncodedSplit,
        vocabularies: VocabularyPair,
        *,
        strength: float,
        seed: int,
        max_tokens: int,
    ) -> None:
        self.split, self.max_tokens = split, max_tokens
        src = build_sampler(vocabularies.src, strength)
        tgt = src if vocabularies.joint else build_sampler(vocabularies.tgt, strength)
        self.settings = f"{vocabularies.content_hash} {strength!r} {max_tokens} {version('sentencepiece')}"
        self._begin(_PairSampler((src, tgt), seed, max_tokens))

    def _begin(self, sampler: "_PairSampler") -> None:
        """Take the segmentations from ``sampler``; nothing is drawn yet."""
        self._sampler = sampler
        self._last: tuple[int, EncodedSplit] | None = None
        self._requested: int | None = None
        self._workers: list[Worker] = []
        self._may_start_workers = bool(sys.executable)  # which is empty in some embedded interpreters
        self._stack = ExitStack()

    def with_seed(self, seed: int) -> "SampledSplit":
        """Return the same split with other draws."""
        other = copy(self)
        other._begin(replace(self._sampler, seed=seed))  # with the words that it knows
        return other

    def epoch(self, epoch: int) -> EncodedSplit:
        """Return the pairs as they are segmented in an epoch, in memory; the last one drawn is kept."""
        if self._last is None or self._last[0] != epoch:
            self._last = None  # frees its memory
            src, tgt = _joined(self._draw(epoch))
            drawn = replace(self.split, src=src, tgt=tgt, folder=None, content_hash="")
            self._last = (epoch, drawn)
        return self._last[1]

    def request(self, epoch: int) -> None:
        """Let other processes draw an epoch, which is the next one that ``epoch`` is asked for.

        Nothing happens for a small split. The processes stay until ``close``.
        """
        count = self._worker_count(MAX_WORKERS)
        if count == 0 or self._requested is not None:
            return
        try:
            if not self._workers:
                draw = partial(_draw_in_background, self._sampler)
                self._workers = [self._stack.enter_context(Worker(draw)) for _ in range(count)]
            blocks = self._blocks(epoch, -(-len(self.split) // count))
            for worker, block in zip(self._workers, blocks, strict=True):
                worker.send(block)
            self._requested = epoch
        except ChildProcessError as error:
            self._give_up_workers(error)

    def close(self) -> None:
        """End the processes, if there are any."""
        self._stack.close()
        self._workers, self._requested = [], None

    def _draw(self, epoch: int) -> list[Sides]:
        """Return the parts of an epoch that the workers have drawn, or draw it now."""
        try:
            return self._received() if self._requested == epoch else self._drawn(epoch)
        except ChildProcessError as error:
            self._give_up_workers(error)
            return self._drawn(epoch)

    def _received(self) -> list[Sides]:
        """Return what the workers have drawn."""
        self._requested = None
        return [worker.receive() for worker in self._workers]

    def _drawn(self, epoch: int) -> list[Sides]:
        """Draw an epoch now."""
        workers = max(1, self._worker_count())
        return list(map_blocks(self._sampler, self._blocks(epoch, CHUNK_PAIRS), workers=workers))

    def _worker_count(self, most: int | None = None) -> int:
        """Return how many other processes may draw, ``most`` at most."""
        count = min(worker_count(), len(self.split) // PAIRS_PER_WORKER) if self._may_start_workers else 0
        return count if most is None else min(count, most)

    def _give_up_workers(self, error: ChildProcessError) -> None:
        """Draw in this process from now on, with the same result: a worker was ended from outside."""
        logger.warning(f"{error}; subword sampling goes on in this process")
        self._may_start_workers = False
        self.close()

    def _blocks(self, epoch: int, size: int) -> Iterator[Block]:
        """Divide the pairs into blocks of at most ``size``."""
        for start in range(0, len(self.split), size):
            indices = np.arange(start, min(start + size, len(self.split)))
            sides = self.split.src.take(indices), self.split.tgt.take(indices)
            yield epoch, self.split.rows[indices], *sides


@dataclass(frozen=True)
class _PairSampler:
    """Random segmentations of the pairs of a block."""

    samplers: tuple[SubwordSampler, SubwordSampler]
    """Those of source and target, one and the same for a joint vocabulary."""
    seed: int
    max_tokens: int

    def __call__(self, block: Block) -> Sides:
        epoch, rows, *sides = block
        src, tgt = (self._sample(number, epoch, rows, side) for number, side in enumerate(sides))
        return src, tgt

    def _sample(self, side: int, epoch: int, rows: Ints, sequences: Sequences) -> Sequences:
        """Draw the sentences of one side, 0 for the source and 1 for the target."""
        ends = zip(sequences.offsets[:-1].tolist(), sequences.offsets[1:].tolist(), strict=True)
        ids = sequences.flat.tolist()
        given = [ids[start:end] for start, end in ends]
        seeds = (((self.seed << 64 | epoch) << 64 | row) << 1 | side for row in rows.tolist())
        drawn = self.samplers[side].sample(given, seeds)
        limited = [new if len(new) <= self.max_tokens else old for old, new in zip(given, drawn, strict=True)]
        flat, offsets = Sequences.of(limited)
        return Sequences(flat.astype(sequences.flat.dtype), offsets)


def _draw_in_background(sampler: Callable[[Block], Sides], block: Block) -> Sides:
    """Draw a large block in slices, whose Python objects bound the memory, while another process trains."""
    if hasattr(os, "setpriority"):  # not on Windows
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    epoch, rows, src, tgt = block
    slices = (np.arange(i, min(i + CHUNK_PAIRS, len(rows))) for i in range(0, len(rows), CHUNK_PAIRS))
    return _joined([sampler((epoch, rows[part], src.take(part), tgt.take(part))) for part in slices])


def _joined(parts: Sequence[Sides]) -> Sides:
    """Lay the sequences of several blocks end to end."""
    src, tgt = (
        Sequences(
            np.concatenate([each.flat for each in side]),
            np.concatenate([[0], np.cumsum(np.concatenate([each.lengths for each in side]))]),
        )
        for side in zip(*parts, strict=True)
    )
    return src, tgt
