"""Divide a corpus into train, valid and test so that no text of one stands in another."""

import numpy as np
from numpy.typing import NDArray

from data.prepare.line_hashes import Keys, Mask, mixed, pair_keys, singles

TRAIN, VALID, TEST, DROPPED = range(4)
SPLITS = ("train", "valid", "test")
Labels = NDArray[np.uint8]

LARGEST = 1_000
"""Pairs of valid and of test where nobody says how many."""


def held_size(asked: int | None, pairs: int) -> int:
    """How many pairs valid or test gets: what was asked for, or a tenth of the corpus and at most 1,000."""
    return min(LARGEST, pairs // 10) if asked is None else asked


def divide(src: Keys, tgt: Keys, kept: Mask, *, valid: int, test: int, seed: int) -> Labels:
    """A label for each pair: TRAIN, VALID, TEST, or DROPPED where it is not ``kept``.

    Valid and test are drawn from the pairs whose source and target stand once in the corpus, so that train
    loses nothing and no split shares a source or a target with another. Which pairs are drawn is a function
    of their text and ``seed``; the order of the lines has no part in it.

    Raises:
        ValueError: too few pairs stand once, or none would be left to train on.
    """
    labels = np.where(kept, TRAIN, DROPPED).astype(np.uint8)
    rows = np.flatnonzero(kept)
    able = rows[singles(src[rows]) & singles(tgt[rows])]
    if valid + test > len(able):
        raise ValueError(
            f"valid and test are to have {valid + test:,} pairs, but only {len(able):,} of {len(rows):,} "
            "have a source and a target that stand once; set --valid and --test lower"
        )
    if valid + test >= len(rows):
        raise ValueError(
            f"valid and test would take all {len(rows):,} pairs; give more, or set --valid and --test lower"
        )
    drawn = able[np.argsort(mixed(pair_keys(src[able], tgt[able]), seed), kind="stable")]
    labels[drawn[:test]] = TEST
    labels[drawn[test : test + valid]] = VALID
    return labels
