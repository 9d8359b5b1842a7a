"""A training split whose text is segmented anew for each epoch."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace

import numpy as np

from data.encode import CHUNK_PAIRS
from data.encoded_split import EncodedSplit, Ints, Sequences
from data.parallel import Worker, available_cores, map_blocks
from data.subword_sampling import build_sampler
from data.vocabulary import VocabularyPair

PAIRS_PER_WORKER = 5_000
"""Pairs for which a worker is worth its start; fewer are drawn in half a second."""
MAX_WORKERS = 4
"""Workers that draw the next epoch."""

Block = tuple[int, Ints, Sequences, Sequences]
"""Number of the epoch, and of some pairs the rows, sources and targets."""


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
        self._sampler = _PairSampler(vocabularies, strength, seed, max_tokens)
        self.settings = f"{vocabularies.content_hash} {strength!r} {max_tokens}"
        self._last: tuple[int, EncodedSplit] | None = None
        self._requested: int | None = None
        self._workers: list[Worker] = []
        self._stack = ExitStack()

    def with_seed(self, seed: int) -> "SampledSplit":
        """Return the same split with other draws."""
        other = copy(self)
        other._sampler = self._sampler.with_seed(seed)
        other._last, other._requested, other._workers, other._stack = None, None, [], ExitStack()
        return other

    def epoch(self, epoch: int) -> EncodedSplit:
        """Return the pairs as they are segmented in an epoch, in memory; the last one drawn is kept.

        Raises:
            ChildProcessError: a worker that draws the epoch was ended from outside.
        """
        if self._last is None or self._last[0] != epoch:
            self._last = None  # frees its memory
            sides = zip(*self._received() if self._requested == epoch else self._drawn(epoch), strict=True)
            src, tgt = (_joined(parts) for parts in sides)
            drawn = replace(self.split, src=src, tgt=tgt, memory_maps=(), folder=None, content_hash="")
            self._last = (epoch, drawn)
        return self._last[1]

    def request(self, epoch: int) -> None:
        """Let other processes draw an epoch, which is the next one that ``epoch`` is asked for.

        Nothing happens for a small split. The processes stay until ``close``.
        """
        count = min(MAX_WORKERS, available_cores(), len(self.split) // PAIRS_PER_WORKER)
        if count == 0 or self._requested is not None:
            return
        if not self._workers:
            self._workers = [self._stack.enter_context(Worker(self._sampler)) for _ in range(count)]
        for worker, block in zip(
            self._workers, self._blocks(epoch, -(-len(self.split) // count)), strict=True
        ):
            worker.send(block)
        self._requested = epoch

    def close(self) -> None:
        """End the processes, if there are any."""
        self._stack.close()
        self._workers, self._requested = [], None

    def _received(self) -> list[tuple[Sequences, Sequences]]:
        """Return what the workers have drawn."""
        self._requested = None
        return [worker.receive() for worker in self._workers]

    def _drawn(self, epoch: int) -> Iterator[tuple[Sequences, Sequences]]:
        """Draw an epoch now."""
        return map_blocks(self._sampler, self._blocks(epoch, CHUNK_PAIRS))

    def _blocks(self, epoch: int, size: int) -> Iterator[Block]:
        """Divide the pairs into blocks of at most ``size``."""
        for start in range(0, len(self.split), size):
            indices = np.arange(start, min(start + size, len(self.split)))
            sides = self.split.src.take(indices), self.split.tgt.take(indices)
            yield epoch, self.split.rows[indices], *sides
            self.split.release_pages()


class _PairSampler:
    """Random segmentations of the pairs of a block."""

    def __init__(self, vocabularies: VocabularyPair, strength: float, seed: int, max_tokens: int) -> None:
        src = build_sampler(vocabularies.src, strength)
        self._samplers = src, src if vocabularies.joint else build_sampler(vocabularies.tgt, strength)
        self._seed, self._max_tokens = seed, max_tokens

    def with_seed(self, seed: int) -> "_PairSampler":
        """Return the same sampler, with the words that it knows, for another seed."""
        other = copy(self)
        other._seed = seed
        return other

    def __call__(self, block: Block) -> tuple[Sequences, Sequences]:
        epoch, rows, *sides = block
        src, tgt = (self._sample(number, epoch, rows, side) for number, side in enumerate(sides))
        return src, tgt

    def _sample(self, side: int, epoch: int, rows: Ints, sequences: Sequences) -> Sequences:
        """Draw the sentences of one side, 0 for the source and 1 for the target."""
        ends = zip(sequences.offsets[:-1].tolist(), sequences.offsets[1:].tolist(), strict=True)
        ids = sequences.flat.tolist()
        given = [ids[start:end] for start, end in ends]
        seeds = (((self._seed << 64 | epoch) << 64 | row) << 1 | side for row in rows.tolist())
        drawn = self._samplers[side].sample(given, seeds)
        limited = [
            new if len(new) <= self._max_tokens else old for old, new in zip(given, drawn, strict=True)
        ]
        flat, offsets = Sequences.of(limited)
        return Sequences(flat.astype(sequences.flat.dtype), offsets)


def _joined(parts: Sequence[Sequences]) -> Sequences:
    """Lay the sequences of several blocks end to end."""
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sequences(np.concatenate([part.flat for part in parts]), offsets)
