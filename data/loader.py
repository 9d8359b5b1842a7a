"""The stream of training batches, a function of (split, token budget, seed, epoch) alone."""

import hashlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from data.batch import Batch, make_batch
from data.encoded_split import EncodedSplit, Ints

SRC_SHARE = 1.5
"""How much more of the source a batch may hold: thousands of long sources have short targets."""


class BatchStream:
    """Batches of pairs of like length, in an order of each epoch's own.

    Args:
        split: the pairs.
        batch_tokens: upper bound on the target tokens of a batch, EOS and padding included; its source may
            hold ``SRC_SHARE`` times as many, so that the memory that training takes has a bound.
        seed: with the epoch's number, what the order is drawn from.
    """

    def __init__(self, split: EncodedSplit, *, batch_tokens: int, seed: int) -> None:
        longest = int(split.tgt_lengths.max()) + 1
        if batch_tokens < longest:
            raise ValueError(
                f"batch_tokens ({batch_tokens}) must hold the longest target ({longest} tokens with EOS); "
                "raise it, or drop long pairs by max_tokens"
            )
        self._split = split
        self.batch_tokens, self._src_tokens = batch_tokens, int(SRC_SHARE * batch_tokens)
        self.seed = seed
        self._planned: tuple[int | None, list[Ints]] = (None, [])

    def plan(self, epoch: int) -> list[Ints]:
        """The places in the split of each batch's pairs; every pair stands in one batch.

        The last plan is kept: the first is asked for thrice, by its count, its hash and training.
        """
        if self._planned[0] != epoch:
            self._planned = (None, [])  # gives its memory to the next
            self._planned = (epoch, self._plan(epoch))
        return self._planned[1]

    def _plan(self, epoch: int) -> list[Ints]:
        generator = np.random.default_rng([self.seed, epoch])
        tgt_tokens = _rounded_up(np.arange(int(self._split.tgt_lengths.max()) + 2, dtype=np.int32))
        tgt_tokens = np.minimum(tgt_tokens, self.batch_tokens)[self._split.tgt_lengths + 1]
        groups = np.flatnonzero(np.bincount(tgt_tokens))
        # A group of like targets is ordered by source length, up and down in turn, so that neighbours over
        # the border fit too. Which groups go up changes with the epoch, chance settles the ties, and a first
        # batch of random size moves all later cuts: so epochs differ in their batches, not in order alone.
        src_order = generator.random(len(tgt_tokens))
        src_order += self._split.src_lengths
        parts = []
        for number, tokens in reversed(list(enumerate(groups))):
            rows = np.flatnonzero(tgt_tokens == tokens)
            sign = 1 if (number + epoch) % 2 else -1
            parts.append(rows[np.argsort(sign * src_order[rows], kind="stable")])
        order = np.concatenate(parts)
        first = int(generator.integers(1, self.batch_tokens // int(tgt_tokens[order[0]]), endpoint=True))
        sides = (tgt_tokens, self.batch_tokens), (self._split.src_lengths + 1, self._src_tokens)
        batches = [*_cut(order[:first], *sides), *_cut(order[first:], *sides)]
        return [batches[i] for i in generator.permutation(len(batches))]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number ``start`` on; those before it are never built."""
        for rows in self.plan(epoch)[start:]:
            yield make_batch(self._split, rows)
            self._split.let_go()

    def stream_hash(self, epoch: int = 1) -> str:
        """The sha256 of all ids an epoch feeds, padding and order included."""
        digest = hashlib.sha256()
        for batch in self.epoch(epoch):
            for ids in (batch.src, batch.tgt_in, batch.tgt_out):
                digest.update(repr(tuple(ids.shape)).encode())
                digest.update(ids.numpy().tobytes())
        return digest.hexdigest()

    def padding(self, epoch: int = 1) -> tuple[float, float]:
        """The share of positions that are padding: of the target's, and of source and target together."""
        src, tgt = self._split.src_lengths + 1, self._split.tgt_lengths + 1
        plan = self.plan(epoch)
        src_places = sum(len(rows) * int(src[rows].max()) for rows in plan)
        tgt_places = sum(len(rows) * int(tgt[rows].max()) for rows in plan)
        total = 1 - (src.sum() + tgt.sum()) / (src_places + tgt_places)
        return float(1 - tgt.sum() / tgt_places), float(total)


def decode_batches(split_or_lengths: EncodedSplit | Ints, batch_tokens: int) -> list[Ints]:
    """Group sources for search, longest first, each group of at most ``batch_tokens`` places, EOS included.

    A source that is longer by itself is a group of its own: what has to be translated cannot be refused.
    """
    given = split_or_lengths
    lengths = given.src_lengths if isinstance(given, EncodedSplit) else np.asarray(given)
    return _cut(np.argsort(-lengths, kind="stable"), (lengths + 1, batch_tokens))


def _rounded_up(lengths: Ints) -> Ints:
    """Lengths from 25 on, rounded up by 4% at most: a little target padding saves more of the source's."""
    steps = 1 + lengths // 25
    return -(-lengths // steps) * steps


def _cut(order: Ints, *sides: tuple[Ints, int]) -> list[Ints]:
    """Cut rows into groups of one row or of at most so many places on each side, (tokens, budget) given.

    Rows are ordered from the longest down of the first side, whose tokens bound the size of a group.
    """
    edges = [0]
    while (start := edges[-1]) < len(order):
        tokens, budget = sides[0]
        rows = order[start : start + max(1, budget // int(tokens[order[start]]))]
        counts = np.arange(1, len(rows) + 1)
        fit = (int(np.sum(np.maximum.accumulate(side[rows]) * counts <= most)) for side, most in sides)
        edges.append(start + max(1, min(fit)))
    return [order[start:end] for start, end in pairwise(edges)]
