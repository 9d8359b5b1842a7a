"""Division of a corpus into train, valid and test sets that share no source and no target."""

import unicodedata
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

# 64-bit hashes of texts, so that repeats among ten million lines are found without keeping the lines.


Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]

HASH_BYTES = 8
"""Among ten million different texts, two share a hash with a probability of 3 in a million."""


def normalise(text: str) -> str:
    """Apply NFKC and case folding, and reduce white space to single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def hash_text(text: str) -> bytes:
    """Hash a text to ``HASH_BYTES`` bytes, the same ones in every process."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def hash_array(content: bytes | bytearray) -> Hashes:
    """View concatenated results of ``hash_text`` as an array.

    Args:
        content: the hashes' bytes; a bytearray must not grow while the array is in use.
    """
    return np.frombuffer(content, dtype="<u8")


def splitmix64(values: Hashes, seed: int = 0) -> Hashes:
    """Map 64-bit numbers one-to-one to pseudo-random ones that depend on ``seed`` (Steele et al. 2014)."""
    x = values + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def pair_hashes(src: Hashes, tgt: Hashes) -> Hashes:
    """Combine the hashes of source and target into one hash per pair."""
    return splitmix64(src) ^ tgt


def is_repeat(hashes: Hashes) -> Mask:
    """Return True at each hash that occurs earlier in the array too."""
    candidates = np.flatnonzero(~is_unique(hashes))
    order = candidates[np.argsort(hashes[candidates], kind="stable")]
    repeated = np.zeros(len(hashes), dtype=np.bool_)
    repeated[order[1:]] = _equals_previous(hashes[order])
    return repeated


def is_unique(hashes: Hashes) -> Mask:
    """Return True at each hash that occurs only once in the array."""
    order = np.argsort(hashes)  # equal hashes in any order, which is several times faster than in theirs
    equal = _equals_previous(hashes[order])
    unique = np.ones(len(hashes), dtype=np.bool_)
    unique[order[1:]] &= ~equal
    unique[order[:-1]] &= ~equal
    return unique


def smallest(values: Hashes, count: int) -> NDArray[np.int64]:
    """Return the indices of the ``count`` smallest values, ascending; equal ones in their order."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    candidates = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return candidates[np.argsort(values[candidates], kind="stable")][:count]


def _equals_previous(sorted_hashes: Hashes) -> Mask:
    """Compare each hash but the first with the one before it."""
    equal: Mask = sorted_hashes[1:] == sorted_hashes[:-1]
    return equal


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
