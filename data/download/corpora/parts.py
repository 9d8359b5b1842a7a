"""Structure of a named corpus: parts of two sides, each side a text in a published file."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from data.download.corpora.published import Form, whole_lines
from data.download.download import Remote

Pair = tuple[str, str]
Divide = Callable[[Iterable[Pair]], Iterator[tuple[str, str, str]]]
"""Assigns pairs to splits; yields (split, source, target)."""

HELD_OUT_FRACTION = 0.01
"""Fraction of sources for valid, and again for test, in a corpus without published splits."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The text of one language."""

    remote: Remote
    member: str = ""
    """Its name in the archive; empty if the download is the text itself."""
    form: Form = whole_lines
    """Reader of its format."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Two texts, parallel line by line, and how their pairs are divided among splits."""

    src: Side
    tgt: Side
    divide: Divide


@dataclass(frozen=True, kw_only=True)
class NamedCorpus:
    """A published corpus: description, and the files that it consists of."""

    name: str
    about: str
    languages: tuple[Pair, ...]
    """Its language pairs; each can be translated in both directions."""
    sizes: Mapping[str, int]
    """Approximate number of pairs of each split, as published, for the first language pair."""
    licence: str
    citation: str
    home: str
    """URL of its home page."""
    parts: Callable[[str, str], tuple[Part, ...]]
    """Lists the parts for one of ``languages``."""

    def pair(self, src: str, tgt: str) -> Pair:
        """Find a language pair in either direction.

        Args:
            src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
            tgt: target language.

        Returns:
            The entry of ``languages``, in its own order.

        Raises:
            ValueError: the corpus has no such pair.
        """
        if not src and not tgt:
            return self.languages[0]
        for pair in self.languages:
            if pair in ((src, tgt), (tgt, src)):
                return pair
        available = ", ".join("-".join(pair) for pair in self.languages)
        raise ValueError(f"{self.name} has no pair {src or '?'}-{tgt or '?'}; it has {available}")


def whole(split: str) -> Divide:
    """Assign all pairs to ``split``."""
    return lambda pairs: ((split, *pair) for pair in pairs)


def every_23rd(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Assign every 23rd pair to valid and the others to train, as fairseq's recipe for IWSLT14 does."""
    for number, pair in enumerate(pairs, start=1):
        yield ("train" if number % 23 else "valid", *pair)


def held_out(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Divide a corpus without published splits by a hash of each source, so that every run gives the same.

    All pairs of one source are in one split. Pairs whose target occurs in test too are dropped from valid and
    train, those whose target occurs in valid from train. All pairs are held in memory: meant for corpora of
    about 100,000 pairs.
    """
    order = ("test", "valid", "train")
    divided = sorted(
        (order.index(_split_of(src)), number, src, tgt) for number, (src, tgt) in enumerate(pairs)
    )
    first_split: dict[str, int] = {}
    for split, _, src, tgt in divided:
        if first_split.setdefault(tgt, split) == split:
            yield order[split], src, tgt


def pairs_of(part: Part, src: Path, tgt: Path) -> Iterator[Pair]:
    """Read the pairs of a part.

    Args:
        part: gives the formats of both texts.
        src: path of the source text.
        tgt: path of the target text.

    Raises:
        ValueError: a text is damaged or not UTF-8, or one text is shorter than the other.
    """
    for number, (left, right) in enumerate(zip_longest(part.src.form(src), part.tgt.form(tgt))):
        if left is None or right is None:
            shorter, longer = (src, tgt) if left is None else (tgt, src)
            raise ValueError(
                f"{shorter} ends after {number:,} sentences, but {longer} is longer: not parallel"
            )
        yield left, right


def _split_of(src: str) -> str:
    """Draw the split of a source by its hash."""
    draw = int.from_bytes(hashlib.sha256(src.encode()).digest()[:8]) / 2**64  # in [0, 1)
    return "test" if draw < HELD_OUT_FRACTION else "valid" if draw < 2 * HELD_OUT_FRACTION else "train"
