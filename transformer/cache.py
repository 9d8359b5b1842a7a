"""What a decoder layer remembers of the tokens it has written: the keys and values of its self-attention."""

from typing import Self

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of up to ``capacity`` tokens for K hypotheses of each of B sentences.

    A leaf of a decoding state: ``select`` and ``keep`` change it in place. Storage is (capacity, 2, B, K, D),
    time first, so that what is in use is one contiguous block: a token is one write, a reordering one copy of
    that block into a second buffer, and (B, K, heads) still merge to one dimension of a batched product.
    """

    def __init__(self, like: Tensor, shape: tuple[int, int, int], capacity: int) -> None:
        """Make an empty cache of ``shape`` (B, K, D), of type and device of ``like``."""
        self.length = 0
        self._used = like.new_empty(capacity, 2, *shape)
        self._spare: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one token's keys and values (B, K, D); returns those of all tokens, (length, B, K, D) each.

        Nothing flows back through a cache: it is for decoding, training runs all positions at once.
        """
        if self.length == self._used.size(0):
            raise ValueError(f"the state holds {self.length} tokens at most: give init_state more capacity")
        self._used[self.length, 0] = keys.detach()
        self._used[self.length, 1] = values.detach()
        self.length += 1
        return self._used[: self.length, 0], self._used[: self.length, 1]

    def select(self, parents: Tensor) -> Self:
        """Let hypothesis k of sentence b continue hypothesis ``parents[b, k]``; parents is (B, K)."""
        sentences, beam = parents.shape
        if beam == 1:
            return self  # the only parent is oneself
        first = torch.arange(sentences, device=parents.device).unsqueeze(1) * beam
        if self._spare is None:
            self._spare = torch.empty_like(self._used)
        source, target = (
            buffer[: self.length].view(self.length, 2, sentences * beam, -1)
            for buffer in (self._used, self._spare)
        )
        torch.index_select(source, 2, (first + parents).flatten(), out=target)
        self._used, self._spare = self._spare, self._used
        return self

    def keep(self, rows: Tensor) -> Self:
        """Keep only the sentences ``rows``, (B',)."""
        kept = self._used.new_empty(*self._used.shape[:2], rows.numel(), *self._used.shape[3:])
        torch.index_select(self._used[: self.length], 2, rows, out=kept[: self.length])
        self._used, self._spare = kept, None
        return self
