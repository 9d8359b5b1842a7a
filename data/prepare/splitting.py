"""Division of a corpus into train, valid and test sets that share no source and no target."""

import numpy as np
from numpy.typing import NDArray

from data.prepare.line_hashes import Hashes, Mask, is_unique, pair_hashes, smallest, splitmix64

TRAIN, VALID, TEST, DROPPED = range(4)
SPLITS = ("train", "valid", "test")
Labels = NDArray[np.uint8]

MAX_HELD_OUT = 1_000
"""Upper bound on the default number of pairs of valid and of test."""


def held_out_size(requested: int | None, pairs: int) -> int:
    """Return the number of pairs of valid or test.

    Args:
        requested: the user's choice; None: a tenth of the corpus, from 1 to ``MAX_HELD_OUT``.
        pairs: size of the corpus.
    """
    return min(MAX_HELD_OUT, max(pairs // 10, 1)) if requested is None else requested


def assign_splits(src: Hashes, tgt: Hashes, kept: Mask, *, valid: int, test: int, seed: int) -> Labels:
    """Assign each pair to a split.

    Valid and test are drawn from the pairs whose source and target both occur only once in the corpus. So
    splits share no source and no target, and no further pair must be dropped. The choice depends on the texts
    and ``seed`` only, not on the order of the lines.

    Args:
        src: hashes of the sources, (N,).
        tgt: hashes of the targets, (N,).
        kept: True at the pairs to divide, (N,).
        valid: number of pairs of valid.
        test: number of pairs of test.
        seed: seed of the draw.

    Returns:
        TRAIN, VALID or TEST for each pair, DROPPED where ``kept`` is False, (N,).

    Raises:
        ValueError: too few pairs are unique on both sides, or none would be left for training.
    """
    labels = np.where(kept, TRAIN, DROPPED).astype(np.uint8)
    rows = np.flatnonzero(kept)
    candidates = rows[is_unique(src[rows]) & is_unique(tgt[rows])]
    if valid + test >= len(rows):
        raise ValueError(
            f"valid and test are to have {valid + test:,} pairs, but the corpus has {len(rows):,}: "
            f"give at least {valid + test + 1:,} different pairs"
        )
    if valid + test > len(candidates):
        raise ValueError(
            f"valid and test are to have {valid + test:,} pairs, but only {len(candidates):,} of "
            f"{len(rows):,} have a source and a target that occur once; set --valid and --test lower"
        )
    order = splitmix64(pair_hashes(src[candidates], tgt[candidates]), seed)
    drawn = candidates[smallest(order, valid + test)]
    labels[drawn[:test]] = TEST
    labels[drawn[test : test + valid]] = VALID
    return labels
