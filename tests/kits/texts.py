"""Raw data in files of any format, made-up corpora, and encoded splits of random ids."""

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from data.encode import EncodedSplit, Sequences

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
WORDS = {
    "red": "roter",
    "old": "alter",
    "small": "kleiner",
    "dog": "Hund",
    "cat": "Kater",
    "tree": "Baum",
    "sees": "sieht",
    "the": "der",
    "house": "Häuschen",
    "runs": "läuft",
    "with": "mit",
    "three": "drei",
}
Pair = tuple[str, str]


def lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def write(path: Path, content: bytes) -> Path:
    """Write ``content``, compressed if the suffix is .gz."""
    path.write_bytes(PACK.get(path.suffix, PACK[""])(content))
    return path


def two_files(folder: Path, pairs: Sequence[Pair], stem: str = "corpus", packing: str = "") -> list[Path]:
    sides = zip(*pairs, strict=True)
    named = zip(("en", "de"), sides, strict=True)
    return [write(folder / f"{stem}.{lang}{packing}", lines(side)) for lang, side in named]


def table(path: Path, pairs: Sequence[Pair]) -> Path:
    return write(path, lines(f"{number}\t{src}\t{tgt}" for number, (src, tgt) in enumerate(pairs)))


def records(path: Path, pairs: Sequence[Pair]) -> Path:
    return write(
        path, lines(json.dumps({"id": 1, "translation": {"en": src, "de": tgt}}) for src, tgt in pairs)
    )


def made_up(size: int, seed: int = 1) -> list[Pair]:
    """Different English-German pairs, word for word and back to front."""
    rng, pairs = random.Random(seed), {}
    while len(pairs) < size:
        words = rng.choices(list(WORDS), k=rng.randint(4, 9))
        pairs[" ".join(words)] = " ".join(WORDS[word] for word in reversed(words))
    return list(pairs.items())


def refused(call: Callable[[], object], *parts: str) -> None:
    """Assert that ``call`` fails with one line that holds all ``parts``."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


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
    return [sequences.flat[start:end].tolist() for start, end in pairwise(sequences.offsets)]
