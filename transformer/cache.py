"""Cache of self-attention keys and values, and the state of decoding."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from .attention import KeysValues

# Cache of self-attention keys and values during decoding.
#
# Shapes: B sentences, K hypotheses each, D width of the keys or values of all heads together.


class KeyValueCache:
    """Keys and values of up to ``capacity`` tokens for K hypotheses of each of B sentences.

    A leaf of a decoding state: ``select`` and ``keep`` change it in place. It is stored as
    (capacity, 2, B, K, D), time first, so that the used part is one contiguous block. Appending a token is
    one write, and reordering copies that block into a second buffer. (B, K, heads) still merge into one
    dimension of a batched matrix product. If keys and values differ in width, both are stored as wide as the
    wider.
    """

    def __init__(self, like: Tensor, shape: tuple[int, int, int], capacity: int) -> None:
        """Allocate an empty cache.

        Args:
            like: a tensor with the type and device of the keys and values.
            shape: (B, K, D).
            capacity: maximum number of tokens per hypothesis.
        """
        self.length = 0
        self._buffer = like.new_empty(capacity, 2, *shape)
        self._spare: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the next token of each hypothesis.

        Gradients do not flow through the cache: it serves decoding only.

        Args:
            keys: (B, K, D), or narrower than D, the width of the cache.
            values: (B, K, D), or narrower.

        Returns:
            The keys and the values of all tokens so far, as wide as given, (length, B, K, D) each.

        Raises:
            ValueError: the cache is full.
        """
        if self.length == self._buffer.size(0):
            raise ValueError(f"the state holds {self.length} tokens at most: give init_state more capacity")
        buffer, width = self._buffer, values.size(-1)
        if keys.size(-1) == width:
            buffer[self.length, 0] = keys.detach()
            buffer[self.length, 1] = values.detach()
            self.length += 1
            return buffer[: self.length, 0], buffer[: self.length, 1]
        buffer[self.length, 0, ..., : keys.size(-1)] = keys.detach()
        buffer[self.length, 1, ..., :width] = values.detach()
        self.length += 1
        return buffer[: self.length, 0, ..., : keys.size(-1)], buffer[: self.length, 1, ..., :width]

    def select(self, parents: Tensor) -> Self:
        """Reorder hypotheses: hypothesis k of sentence b continues ``parents[b, k]``; parents is (B, K)."""
        sentences, beam = parents.shape
        if beam == 1:
            return self  # a single hypothesis can only continue itself
        offsets = torch.arange(sentences, device=parents.device).unsqueeze(1) * beam
        if self._spare is None:
            self._spare = torch.empty_like(self._buffer)
        source, target = (
            buffer[: self.length].view(self.length, 2, sentences * beam, -1)
            for buffer in (self._buffer, self._spare)
        )
        torch.index_select(source, 2, (offsets + parents).flatten(), out=target)
        self._buffer, self._spare = self._spare, self._buffer
        return self

    def keep(self, rows: Tensor) -> Self:
        """Drop all sentences but ``rows``, indices (B',)."""
        buffer = self._buffer.new_empty(*self._buffer.shape[:2], rows.numel(), *self._buffer.shape[3:])
        torch.index_select(self._buffer[: self.length], 2, rows, out=buffer[: self.length])
        self._buffer, self._spare = buffer, None
        return self


# Values passed between the methods of a model.
#
# Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width.


class Features(NamedTuple):
    """Input of the loss."""

    hidden: Tensor
    """Input of the output layer, (B, T, D)."""
    choices: None = None
    """None: no source position is sampled."""


class Memory(NamedTuple):
    """Encoded sources, computed once per sentence."""

    layers: tuple[KeysValues, ...]
    """Per layer, the keys and values of the source: for cross-attention, or of the prefix (DecoderOnly)."""
    mask: Tensor
    """True at real source tokens, (B, 1, 1, S)."""


class State(NamedTuple):
    """Decoding state of B x K hypotheses."""

    layers: tuple[KeyValueCache, ...]
    """Per layer, the cached keys and values of self-attention."""

    @property
    def length(self) -> int:
        """Number of tokens fed to each hypothesis so far."""
        return self.layers[0].length


def empty_state(like: Tensor, layers: int, shape: tuple[int, int, int], capacity: int) -> State:
    """Build the state before the first token.

    Args:
        like: a tensor with the type and device of the keys and values.
        layers: number of layers.
        shape: (B, K, width of all heads together).
        capacity: maximum number of tokens per hypothesis.

    Returns:
        A state of length 0.
    """
    return State(tuple(KeyValueCache(like, shape, capacity) for _ in range(layers)))
