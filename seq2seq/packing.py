"""Packing of padded sentences for recurrent layers, without waiting for a GPU.

``torch.nn.utils.rnn.pack_padded_sequence`` copies its indices in a way that waits for the device, and
``pad_packed_sequence`` reads them back. Here all indices are computed on the host and copied at once.

Shapes: B sentences, S positions, N real tokens, E features.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


class Packing(NamedTuple):
    """Order of the real tokens of a batch: position by position, the longest sentence first."""

    tokens: Tensor
    """Index of each real token among all B * S positions, (N,)."""
    sentences: Tensor
    """Index of each sentence in that order, (B,)."""
    inverse: Tensor
    """Position of each sentence in that order, (B,)."""
    batch_sizes: Tensor
    """Number of sentences that reach each position, on the CPU, (longest length,)."""

    def pack(self, x: Tensor) -> PackedSequence:
        """Take the real tokens out of x (B, S, E)."""
        entries = x.flatten(0, 1).index_select(0, self.tokens)
        return PackedSequence(entries, self.batch_sizes, self.sentences, self.inverse)

    def unpack(self, packed: PackedSequence, size: int) -> Tensor:
        """Put the real tokens back: (B, ``size``, E), 0 in the padding; the inverse of ``pack``."""
        entries = packed.data
        padded = entries.new_zeros(len(self.inverse) * size, entries.size(1))
        return padded.index_copy(0, self.tokens, entries).view(-1, size, entries.size(1))


def plan_packing(lengths: Tensor, size: int, device: torch.device) -> Packing:
    """Compute the packing of sentences.

    Args:
        lengths: number of real tokens of each sentence, at least 1, on the CPU, (B,).
        size: number of positions S, padding included.
        device: where the sentences are.
    """
    longest_first, sentences = torch.sort(lengths, descending=True)
    position = torch.arange(int(longest_first[0])).unsqueeze(1)  # (longest length, 1)
    is_real = position < longest_first  # (longest length, B)
    tokens = (sentences * size + position)[is_real]
    inverse = torch.empty_like(sentences).scatter_(0, sentences, torch.arange(len(sentences)))
    indices = torch.cat((tokens, sentences, inverse))
    if device.type == "cuda":
        indices = indices.pin_memory().to(device, non_blocking=True)
    sizes = [len(tokens), len(sentences), len(sentences)]
    tokens, sentences, inverse = indices.to(device).split_with_sizes(sizes)
    return Packing(tokens, sentences, inverse, is_real.sum(1))
