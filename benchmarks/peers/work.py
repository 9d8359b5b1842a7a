"""Inputs of the benchmark: ids and lengths in one file, which every toolkit reads.

Needs numpy alone, for it is read in the environment of each peer. Shapes: B sentences, S source and T target
positions. Padding is on the right and counts nowhere.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Pairs(NamedTuple):
    """Sentence pairs to train on; ``src`` and ``tgt_out`` end in EOS, ``tgt_in`` begins with BOS."""

    src: Ints
    """(B, S)."""
    src_lengths: Ints
    """With EOS, (B,)."""
    tgt_in: Ints
    """(B, T)."""
    tgt_out: Ints
    """(B, T)."""
    tgt_lengths: Ints
    """Of ``tgt_in`` and of ``tgt_out``, (B,)."""

    @property
    def tokens(self) -> int:
        """Source tokens without EOS and target tokens with it: what throughput counts."""
        return int(self.src_lengths.sum() - len(self.src_lengths) + self.tgt_lengths.sum())

    @property
    def longest_first(self) -> "Pairs":
        """The same pairs from the longest source to the shortest."""
        order = np.argsort(-self.src_lengths, kind="stable")
        return Pairs(*(part[order] for part in self))


class Sources(NamedTuple):
    """Sentences to translate, from the longest to the shortest."""

    ids: Ints
    """With EOS, (B, S)."""
    lengths: Ints
    """With EOS, (B,)."""


class Work(NamedTuple):
    """Inputs of one benchmark."""

    vocabulary: int
    """Ids of the vocabulary that source and target share."""
    pad: int
    unk: int
    bos: int
    eos: int
    pairs: Sequence[Pairs]
    sources: Sequence[Sources]

    @property
    def sentences(self) -> int:
        """Sentences to translate."""
        return sum(len(batch.ids) for batch in self.sources)


def save_work(path: Path, work: Work) -> None:
    """Write ``work`` to ``path``, an .npz file."""
    arrays = {"numbers": np.array(work[:5], dtype=np.int64)}
    for kind, batches in (("pairs", work.pairs), ("sources", work.sources)):
        for index, batch in enumerate(batches):
            arrays |= {f"{kind}/{index}/{name}": part for name, part in batch._asdict().items()}
    np.savez(path, allow_pickle=False, **arrays)


def load_work(path: Path) -> Work:
    """Read what ``save_work`` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        vocabulary, pad, unk, bos, eos = arrays["numbers"].tolist()
        pairs, sources = [], []
        while f"pairs/{len(pairs)}/src" in arrays:
            pairs.append(Pairs(*(arrays[f"pairs/{len(pairs)}/{name}"] for name in Pairs._fields)))
        while f"sources/{len(sources)}/ids" in arrays:
            sources.append(Sources(*(arrays[f"sources/{len(sources)}/{name}"] for name in Sources._fields)))
    return Work(vocabulary, pad, unk, bos, eos, pairs, sources)
