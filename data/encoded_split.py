"""A split as ids, in memory or, of a large corpus, in files."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from data.sequences import Ints, Sequences
from data.stored_sequences import StoredSequences


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The N pairs of a split as ids, without BOS and EOS; over-long pairs are left out."""

    src: Sequences | StoredSequences
    """Ids of the sources."""
    tgt: Sequences | StoredSequences
    """Ids of the targets."""
    rows: Ints
    """Index in the corpus's split of each pair, (N,); it has gaps where pairs were left out."""
    dropped: int
    """Number of pairs that were left out."""
    folder: Path | None = None
    """The folder of the files; None if the split was never in files."""
    content_hash: str = ""
    """The sha256 over the hashes of these files."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def src_lengths(self) -> Ints:
        """Source ids per pair, EOS not counted, (N,)."""
        return self.src.lengths.astype(np.int32)

    @cached_property
    def tgt_lengths(self) -> Ints:
        """Target ids per pair, BOS and EOS not counted, (N,)."""
        return self.tgt.lengths.astype(np.int32)

    def without_sources(self) -> "EncodedSplit":
        """Return the same pairs with empty sources, for models of the target alone."""
        nothing = Sequences(np.zeros(0, dtype=np.int32), np.zeros(len(self) + 1, dtype=np.int64))
        return replace(self, src=nothing, content_hash=f"{self.content_hash} without sources")
