"""Helpers for tests of raw data: files of any format and compression, a made-up corpus, errors."""

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

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


def lines(texts: Iterable[str], end: str = "\n") -> bytes:
    return "".join(text + end for text in texts).encode()


def write(path: Path, content: bytes) -> Path:
    """``content`` in ``path``, compressed as its suffix requires."""
    path.write_bytes(PACK.get(path.suffix, PACK[""])(content))
    return path


def two_files(folder: Path, pairs: Sequence[Pair], stem: str = "corpus", packing: str = "") -> list[Path]:
    sides = zip(*pairs, strict=True)
    named = zip(("en", "de"), sides, strict=True)
    return [write(folder / f"{stem}.{lang}{packing}", lines(side)) for lang, side in named]


def table(path: Path, pairs: Sequence[Pair]) -> Path:
    return write(path, lines(f"{number}\t{src}\t{tgt}" for number, (src, tgt) in enumerate(pairs)))


def records(path: Path, pairs: Sequence[Pair]) -> Path:
    found = ({"id": 1, "translation": {"en": src, "de": tgt}} for src, tgt in pairs)
    return write(path, lines(map(json.dumps, found)))


def made_up(size: int, seed: int = 1) -> list[Pair]:
    """Different English-German pairs, word for word and back to front."""
    rng, found = random.Random(seed), {}
    while len(found) < size:
        words = rng.choices(list(WORDS), k=rng.randint(4, 9))
        found[" ".join(words)] = " ".join(WORDS[word] for word in reversed(words))
    return list(found.items())


def refused(call: Callable[[], object], *parts: str) -> None:
    """``call`` must fail with one line that holds all ``parts``."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
