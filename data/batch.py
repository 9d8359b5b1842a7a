"""Sentence pairs as padded tensors; the one place where padding and its masks are made.

Shapes: B pairs, S and T the longest source and target of the batch, EOS or BOS included.
Masks are bool, True = a real token. Padding is always at the right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.encoded_split import EncodedSplit, Ints, Sequences
from data.symbols import BOS, EOS, PAD


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Pairs to train on or to score; ``src`` and ``tgt_out`` end in EOS, ``tgt_in`` begins with BOS."""

    src: Tensor
    """Source ids, (B, S), int64."""
    src_mask: Tensor
    """(B, S), bool."""
    tgt_in: Tensor
    """Target ids after BOS, (B, T), int64."""
    tgt_out: Tensor
    """Target ids before EOS, (B, T), int64."""
    tgt_mask: Tensor
    """(B, T), bool; right for ``tgt_in`` and ``tgt_out`` alike."""
    rows: Tensor
    """The number of each pair in the corpus' split, (B,), int64."""
    src_tokens: int
    """Source tokens without EOS and padding."""
    tgt_tokens: int
    """Target tokens with EOS, without padding."""

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch with its tensors on ``device``."""
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Batch(**moved)


def make_batch(split: EncodedSplit, rows: Ints) -> Batch:
    """The pairs at the places ``rows`` of ``split``, in that order."""
    src, tgt = split.src.take(rows), split.tgt.take(rows)
    src_ids, src_mask = padded(src, last=EOS)
    tgt_out, tgt_mask = padded(tgt, last=EOS)
    tgt_in, _ = padded(tgt, first=BOS)
    return Batch(
        src=torch.from_numpy(src_ids),
        src_mask=torch.from_numpy(src_mask),
        tgt_in=torch.from_numpy(tgt_in),
        tgt_out=torch.from_numpy(tgt_out),
        tgt_mask=torch.from_numpy(tgt_mask),
        rows=torch.from_numpy(split.rows[rows]),
        src_tokens=len(src.flat),
        tgt_tokens=len(tgt.flat) + len(rows),
    )


def make_source_batch(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sources alone, to be translated: ids with EOS and their mask, both (B, S)."""
    ids, mask = padded(Sequences.of(sentences), last=EOS)
    return torch.from_numpy(ids), torch.from_numpy(mask)


def padded(
    sequences: Sequences, *, first: int | None = None, last: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One row a sequence, between ``first`` and ``last`` where given; ids and mask, both (B, length)."""
    before, after = int(first is not None), int(last is not None)
    lengths = sequences.lengths[:, None] + before + after  # (B, 1)
    places = np.arange(lengths.max(initial=0))  # (length,)
    ids = np.full((len(lengths), len(places)), PAD, dtype=np.int64)
    mask = places < lengths
    ids[(places >= before) & (places < lengths - after)] = sequences.flat
    if first is not None:
        ids[:, 0] = first
    if last is not None:
        np.put_along_axis(ids, lengths - 1, last, axis=1)
    return ids, mask
