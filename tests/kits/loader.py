"""Encoded splits of random ids: what the tests of batches and their stream share."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from data.encode import EncodedSplit, Sequences


def split_of(src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> EncodedSplit:
    """An encoded split of these ids, its rows numbered in tens."""
    rows = 10 * np.arange(len(src))
    return EncodedSplit(src=Sequences.of(src), tgt=Sequences.of(tgt), rows=rows, dropped=0)


def random_split(lengths: Sequence[tuple[int, int]], seed: int = 0) -> EncodedSplit:
    """A split of random ids with these source and target lengths."""
    generator = np.random.default_rng(seed)
    src, tgt = (
        [generator.integers(4, 99, size=n).tolist() for n in side] for side in zip(*lengths, strict=True)
    )
    return split_of(src, tgt)


def many(count: int = 300, seed: int = 0) -> EncodedSplit:
    """A split of ``count`` pairs of 1 to 30 ids a side."""
    generator = np.random.default_rng(seed)
    return random_split(generator.integers(1, 31, size=(count, 2)).tolist(), seed)


def ids_of(sequences: Sequences) -> list[list[int]]:
    """The ids of each sequence."""
    return [sequences.flat[start:end].tolist() for start, end in pairwise(sequences.offsets)]


LENGTHS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=1, max_size=60)
