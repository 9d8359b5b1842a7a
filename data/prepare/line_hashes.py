"""Eight bytes that stand for a text, so that repeats in ten million lines are found in little memory."""

import unicodedata
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

KEY_BYTES = 8
"""Two of ten million different texts get one key with a probability of 3 in a million."""


def normalised(text: str) -> str:
    """What two texts share that are the same but for case, spaces and Unicode's compatible forms (NFKC)."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def key_of(text: str) -> bytes:
    """The key of a normalised text; the same in every process, and appended to others in a bytearray."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def as_keys(content: bytes | bytearray) -> Keys:
    """The keys that lie end to end in ``content``, which must not grow while they are used."""
    return np.frombuffer(content, dtype="<u8")


def mixed(keys: Keys, seed: int = 0) -> Keys:
    """A one-to-one shuffle of 64-bit numbers (splitmix64, Steele et al. 2014): the same for one ``seed``."""
    x = keys + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def pair_keys(src: Keys, tgt: Keys) -> Keys:
    """One key for each pair of source and target."""
    return mixed(src) ^ tgt


def repeats(keys: Keys) -> Mask:
    """True at each key that stood before."""
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(keys), dtype=np.bool_)
    again[order[1:]] = _equal_neighbours(keys[order])
    return again


def singles(keys: Keys) -> Mask:
    """True at each key that stands nowhere else."""
    order = np.argsort(keys, kind="stable")
    same = _equal_neighbours(keys[order])
    alone = np.ones(len(keys), dtype=np.bool_)
    alone[order[1:]] &= ~same
    alone[order[:-1]] &= ~same
    return alone


def _equal_neighbours(ordered: Keys) -> Mask:
    equal: Mask = ordered[1:] == ordered[:-1]
    return equal
