"""Batches, and the stream of training batches: a function of (split, token budget, seed, epoch) alone."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.encode import EncodedSplit, Ints, Sequences
from data.vocabulary import BOS, EOS, PAD

if TYPE_CHECKING:
    from data.sampling import SampledSplit

# Sentence pairs as padded tensors; the only place where padding and its masks are made.
#
# Shapes: B pairs; S and T the longest source and target of the batch, EOS or BOS included.
# Masks are bool, True = a real token. Padding is always on the right.


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pairs to train on or to score; ``src`` and ``tgt_out`` end in EOS, ``tgt_in`` begins with BOS."""

    src: Tensor
    """Source ids with EOS, (B, S), int64."""
    src_mask: Tensor
    """True at real tokens of ``src``, EOS included, (B, S), bool."""
    tgt_in: Tensor
    """Decoder input: BOS and the target ids, (B, T), int64."""
    tgt_out: Tensor
    """Ids to predict: the target ids and EOS, (B, T), int64."""
    tgt_mask: Tensor
    """True at real tokens of ``tgt_in`` and of ``tgt_out``, (B, T), bool."""
    rows: Tensor
    """Index of each pair in its split of the corpus, from 0, (B,), int64; always on the CPU."""
    src_lengths: Tensor
    """Real tokens of each source, EOS included, (B,), int64; always on the CPU, where recurrent encoders
    need it: reading it from a mask would wait for the GPU.
    """
    src_tokens: int
    tgt_tokens: int
    """Targets to predict: with EOS, without padding."""

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str) -> "Batch":
        """Copy ids and masks to another device; nothing waits for a copy to a GPU."""
        to_gpu = torch.device(device).type == "cuda" and not self.src.is_cuda
        parts = {name: getattr(self, name) for name in ("src", "tgt_in", "tgt_out", "src_mask", "tgt_mask")}
        moved: dict[str, Any] = {
            name: (part.pin_memory() if to_gpu else part).to(device, non_blocking=to_gpu)
            for name, part in parts.items()
        }
        return replace(self, **moved)


@dataclass(frozen=True, kw_only=True)
class GlobalBatch:
    """The pairs of one update, as far as this process computes on them, in parts that fit its memory."""

    parts: tuple[Batch, ...]
    """This process's share: one batch, or several if gradients are accumulated; may be empty."""
    src_tokens: int
    tgt_tokens: int
    """Targets to predict of all processes: with EOS, without padding."""

    def to(self, device: torch.device | str) -> "GlobalBatch":
        """Copy the parts to another device."""
        return replace(self, parts=tuple(part.to(device) for part in self.parts))


def make_batch(split: EncodedSplit, indices: Ints) -> Batch:
    """Build the batch of the pairs at ``indices``, on the CPU; its ``rows`` are indices in the corpus."""
    src, tgt = split.src.take(indices), split.tgt.take(indices)
    src_ids, src_mask = padded(src, last=EOS)
    tgt_out, tgt_mask = padded(tgt, last=EOS)
    tgt_in, _ = padded(tgt, first=BOS)
    return Batch(
        src=torch.from_numpy(src_ids),
        src_mask=torch.from_numpy(src_mask),
        tgt_in=torch.from_numpy(tgt_in),
        tgt_out=torch.from_numpy(tgt_out),
        tgt_mask=torch.from_numpy(tgt_mask),
        rows=torch.from_numpy(split.rows[indices]),
        src_lengths=torch.from_numpy(src.lengths + 1),
        src_tokens=len(src.flat),
        tgt_tokens=len(tgt.flat) + len(indices),
    )


def make_source_batch(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad sources, given as ids without EOS; returns ids with EOS and mask, (B, S)."""
    ids, mask = padded(Sequences.of(sentences), last=EOS)
    return torch.from_numpy(ids), torch.from_numpy(mask)


def padded(
    sequences: Sequences, *, first: int | None = None, last: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad B sequences on the right, with the ids ``first`` before and ``last`` after if not None.

    Returns int64 ids and a mask, True = a real token, both (B, length).
    """
    before, after = int(first is not None), int(last is not None)
    lengths = sequences.lengths[:, None] + before + after  # (B, 1)
    positions = np.arange(lengths.max(initial=0))  # (length,)
    ids = np.full((len(lengths), len(positions)), PAD, dtype=np.int64)
    mask = positions < lengths
    ids[(positions >= before) & (positions < lengths - after)] = sequences.flat
    if first is not None:
        ids[:, 0] = first
    if last is not None:
        np.put_along_axis(ids, lengths - 1, last, axis=1)
    return ids, mask


# The stream of training batches, a function of (split, sampling, token budget, seed, epoch) alone.
#
# Token counts include EOS: a batch of n pairs takes n x (its longest target + 1) target positions.


SRC_BUDGET_FACTOR = 1.5
"""Source budget over target budget of a batch: thousands of long sources have short targets."""


class BatchStream:
    """Batches of pairs of similar length, in an order drawn again for each epoch from ``seed``.

    ``batch_tokens`` bounds the target positions of a batch, EOS and padding included, and
    ``SRC_BUDGET_FACTOR`` times as many source positions, so that training memory is bounded. A pair with a
    longer source is a batch by itself (``max_tokens`` drops such pairs).

    Raises:
        ValueError: ``batch_tokens`` is smaller than the longest target with EOS that sampling allows.
    """

    def __init__(self, split: "EncodedSplit | SampledSplit", *, batch_tokens: int, seed: int) -> None:
        self._sampled = None if isinstance(split, EncodedSplit) else split
        self._split = split if isinstance(split, EncodedSplit) else split.split
        longest = 1 + (self._sampled.max_tokens if self._sampled else int(self._split.tgt_lengths.max()))
        if batch_tokens < longest:
            limit = ", as long as sampling may make it" if self._sampled else ""
            raise ValueError(
                f"batch_tokens ({batch_tokens}) must hold the longest target "
                f"({longest} tokens with EOS{limit}); raise it, or drop long pairs by max_tokens"
            )
        self.batch_tokens, self._src_tokens = batch_tokens, int(SRC_BUDGET_FACTOR * batch_tokens)
        self.seed = seed
        self._last_plan: tuple[int | None, list[Ints]] = (None, [])
        self._token_counts: dict[int, Ints] = {}

    def with_seed(self, seed: int) -> "BatchStream":
        """Return the stream of the same pairs with another seed, also for samples."""
        split = self._sampled.with_seed(seed) if self._sampled else self._split
        return BatchStream(split, batch_tokens=self.batch_tokens, seed=seed)

    def split(self, epoch: int) -> EncodedSplit:
        """Return the pairs of an epoch: always the same, unless they are sampled."""
        return self._sampled.epoch(epoch) if self._sampled else self._split

    def plan(self, epoch: int) -> list[Ints]:
        """Divide the pairs into batches: per batch, the positions of its pairs in the split.

        The last plan is cached: the first epoch needs it three times.
        """
        if self._last_plan[0] != epoch:
            self._last_plan = (None, [])  # frees its memory before the next plan is made
            self._last_plan = (epoch, self._plan(epoch))
        return self._last_plan[1]

    def _plan(self, epoch: int) -> list[Ints]:
        generator = np.random.default_rng([self.seed, epoch])
        split = self.split(epoch)
        tgt_tokens = _rounded_up(np.arange(int(split.tgt_lengths.max()) + 2, dtype=np.int32))
        tgt_tokens = np.minimum(tgt_tokens, self.batch_tokens)[split.tgt_lengths + 1]
        groups = np.flatnonzero(np.bincount(tgt_tokens))
        # Pairs of equal (rounded) target length form a group. Groups are sorted by source length, ascending
        # and descending in turn, so that a batch across two groups also holds similar sources. Epochs differ
        # in the contents of their batches, not in order alone: the direction of a group alternates between
        # epochs, ties are broken at random, and a first batch of random size moves all later cuts.
        src_order = generator.random(len(tgt_tokens))
        src_order += split.src_lengths
        parts = []
        for number, tokens in reversed(list(enumerate(groups))):
            indices = np.flatnonzero(tgt_tokens == tokens)
            sign = 1 if (number + epoch) % 2 else -1
            parts.append(indices[np.argsort(sign * src_order[indices], kind="stable")])
        order = np.concatenate(parts)
        first = int(generator.integers(1, self.batch_tokens // int(tgt_tokens[order[0]]), endpoint=True))
        sides = (tgt_tokens, self.batch_tokens), (split.src_lengths + 1, self._src_tokens)
        batches = [*_cut(order[:first], *sides), *_cut(order[first:], *sides)]
        return [batches[i] for i in generator.permutation(len(batches))]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Stream the batches of an epoch from batch ``start`` on; earlier ones are not built."""
        split = self.split(epoch)
        for indices in self.plan(epoch)[start:]:
            yield make_batch(split, indices)

    def global_batches(
        self, epoch: int, start: int = 0, *, rank: int = 0, processes: int = 1, accumulate: int = 1
    ) -> Iterator[GlobalBatch]:
        """Stream the share of process ``rank`` of every batch, in ``accumulate`` parts.

        The parts of all processes together are the batch of ``epoch``, whatever their number.
        """
        split = self.split(epoch)
        src, tgt = split.src_lengths, split.tgt_lengths
        for indices in self.plan(epoch)[start:]:
            shares = deal((src[indices] + tgt[indices]), processes * accumulate)
            mine = [indices[share] for share in shares[rank::processes] if len(share)]
            yield GlobalBatch(
                parts=tuple(make_batch(split, rows) for rows in mine),
                src_tokens=int(src[indices].sum()),
                tgt_tokens=int(tgt[indices].sum()) + len(indices),
            )

    def token_counts(self, epoch: int) -> Ints:
        """Count the tokens of the batches of an epoch; the counts of every epoch asked for are kept."""
        if epoch not in self._token_counts:
            plan, split = self.plan(epoch), self.split(epoch)
            src, tgt = split.src_lengths, split.tgt_lengths + 1
            counts = [(int(src[indices].sum()), int(tgt[indices].sum())) for indices in plan]
            self._token_counts[epoch] = np.array(counts)
        return self._token_counts[epoch]

    def stream_hash(self, epoch: int = 1) -> str:
        """Compute the sha256 over all ids of an epoch's batches, padding and order included."""
        digest = hashlib.sha256()
        for batch in self.epoch(epoch):
            for ids in (batch.src, batch.tgt_in, batch.tgt_out):
                digest.update(repr(tuple(ids.shape)).encode())
                digest.update(ids.numpy().tobytes())
        return digest.hexdigest()


def deal(lengths: Ints, shares: int) -> list[Ints]:
    """Divide pairs into shares of about equal length: dealt from the longest on, to and fro."""
    order = np.argsort(-lengths, kind="stable")
    turn, seat = np.divmod(np.arange(len(order)), shares)
    owner = np.where(turn % 2, shares - 1 - seat, seat)
    return [np.sort(order[owner == share]) for share in range(shares)]


def decode_batches(lengths: Ints, batch_tokens: int) -> list[Ints]:
    """Group sources for search, the longest first."""
    return _cut(np.argsort(-lengths, kind="stable"), (lengths + 1, batch_tokens))


def _rounded_up(lengths: Ints) -> Ints:
    # Lengths from 25 on grow by at most 4%: a little target padding saves more source padding.
    steps = 1 + lengths // 25
    return -(-lengths // steps) * steps


def _cut(order: Ints, *sides: tuple[Ints, int]) -> list[Ints]:
    """Cut ordered pairs, those with the longest first side first, into groups within all padded budgets."""
    edges = [0]
    while (start := edges[-1]) < len(order):
        tokens, first_budget = sides[0]
        indices = order[start : start + max(1, first_budget // int(tokens[order[start]]))]
        counts = np.arange(1, len(indices) + 1)
        sizes_that_fit = (
            int(np.sum(np.maximum.accumulate(side[indices]) * counts <= budget)) for side, budget in sides
        )
        edges.append(start + max(1, min(sizes_that_fit)))
    return [order[start:end] for start, end in pairwise(edges)]
