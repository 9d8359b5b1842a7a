"""Sentence pairs as padded tensors; the only place where padding and its masks are made.

Shapes: B pairs; S and T the longest source and target of the batch, EOS or BOS included.
Masks are bool, True = a real token. Padding is always on the right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.encoded_split import EncodedSplit
from data.sequences import Ints, Sequences
from data.symbols import BOS, EOS, PAD


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
    """True at real tokens of ``tgt_in`` and of ``tgt_out``, whose lengths are equal, (B, T), bool."""
    rows: Tensor
    """Index of each pair in its split of the corpus, from 0, (B,), int64; always on the CPU."""
    src_lengths: Tensor
    """Number of real tokens of each source, EOS included, (B,), int64; always on the CPU, where recurrent
    encoders need it: to read it from a mask on a GPU would wait for all work queued there."""
    src_tokens: int
    """Number of source tokens, without EOS and padding."""
    tgt_tokens: int
    """Number of target tokens to predict: with EOS, without padding."""

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str) -> "Batch":
        """Copy ids and masks to another device.

        Args:
            device: the device, such as "cuda"; the copy to a GPU is one transfer, which nothing waits for.
        """
        device = torch.device(device)
        parts = {name: getattr(self, name) for name in ("src", "tgt_in", "tgt_out", "src_mask", "tgt_mask")}
        if device.type == "cuda" and not self.src.is_cuda:
            moved = _copy_together(list(parts.values()), device, pin_memory=True)
        else:
            moved = [part.to(device) for part in parts.values()]
        tensors: dict[str, Any] = dict(zip(parts, moved, strict=True))
        return replace(self, **tensors)


def _copy_together(tensors: Sequence[Tensor], device: torch.device, *, pin_memory: bool) -> list[Tensor]:
    """Copy tensors of the CPU to a device as one block of bytes; those with the largest entries come first.

    Args:
        tensors: at least one tensor.
        device: where to.
        pin_memory: assemble the block in page-locked memory, from which a GPU copies while both work.
    """
    parts = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    sizes = [part.numel() for part in parts]
    block = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=pin_memory)
    moved = torch.cat(parts, out=block).to(device, non_blocking=True).split_with_sizes(sizes)
    return [part.view(old.dtype).view(old.shape) for part, old in zip(moved, tensors, strict=True)]


@dataclass(frozen=True, kw_only=True)
class GlobalBatch:
    """The pairs of one update, as far as this process computes on them, in parts that fit its memory."""

    parts: tuple[Batch, ...]
    """This process's share of the pairs: one batch, or several if gradients are accumulated; may be empty."""
    src_tokens: int
    """Number of source tokens of all processes, without EOS and padding."""
    tgt_tokens: int
    """Number of target tokens to predict of all processes: with EOS, without padding."""

    def to(self, device: torch.device | str) -> "GlobalBatch":
        """Copy the parts to another device, as ``Batch.to`` does."""
        return replace(self, parts=tuple(part.to(device) for part in self.parts))


def make_batch(split: EncodedSplit, indices: Ints) -> Batch:
    """Build the batch of some pairs of a split.

    Args:
        split: the encoded pairs.
        indices: positions of the pairs in ``split``, (B,); the batch keeps their order.

    Returns:
        The batch, on the CPU; its ``rows`` are the indices in the corpus, not those in ``split``.
    """
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
    """Pad sources that are to be translated.

    Args:
        sentences: ids per sentence, without EOS.

    Returns:
        The ids with EOS, (B, S), int64, and their mask, (B, S), bool, True = a real token.
    """
    ids, mask = padded(Sequences.of(sentences), last=EOS)
    return torch.from_numpy(ids), torch.from_numpy(mask)


def padded(
    sequences: Sequences, *, first: int | None = None, last: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad sequences on the right to the longest of them.

    Args:
        sequences: B sequences of ids.
        first: id to put before each sequence; None puts none.
        last: id to put after each sequence; None puts none.

    Returns:
        The ids and the mask (True = a real token), both (B, length).
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
