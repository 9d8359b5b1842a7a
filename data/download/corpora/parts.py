"""What a named corpus is made of: sides of parts of it, each a text in a published file."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from data.download.corpora.published import Form, whole_lines
from data.download.download import Remote

Pair = tuple[str, str]
Divide = Callable[[Iterable[Pair]], Iterator[tuple[str, str, str]]]
"""Gives each pair the split that it belongs to: (split, source, target)."""

HELD_OUT_SHARE = 0.01
"""Of the sources of a corpus that has no published split: what validates, and as much what tests."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The text of one language."""

    remote: Remote
    member: str = ""
    """Its name in the archive; empty where the download is the text itself."""
    form: Form = whole_lines
    """Reads its sentences."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Two texts, parallel line by line, and what they are for."""

    src: Side
    tgt: Side
    divide: Divide


@dataclass(frozen=True, kw_only=True)
class NamedCorpus:
    """A published corpus: what it is, and of what files it is made."""

    name: str
    about: str
    languages: tuple[Pair, ...]
    """Its language pairs; each can be translated in both directions."""
    sizes: Mapping[str, int]
    """About how many pairs its splits have, for its first language pair, as its users report."""
    licence: str
    citation: str
    home: str
    """Where to read more."""
    parts: Callable[[str, str], tuple[Part, ...]]
    """The parts of one of its ``languages``."""

    def pair(self, src: str, tgt: str) -> Pair:
        """The entry of ``languages`` that holds both, in either order; the first, where both are empty."""
        if not src and not tgt:
            return self.languages[0]
        found = next((pair for pair in self.languages if pair in ((src, tgt), (tgt, src))), None)
        if found is None:
            known = ", ".join("-".join(pair) for pair in self.languages)
            raise ValueError(f"{self.name} has no pair {src or '?'}-{tgt or '?'}; it has {known}")
        return found


def whole(split: str) -> Divide:
    """All pairs belong to ``split``."""
    return lambda pairs: ((split, *pair) for pair in pairs)


def every_23rd(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Every 23rd pair validates, the others train: how the common recipe divides IWSLT14."""
    for number, pair in enumerate(pairs, start=1):
        yield ("train" if number % 23 else "valid", *pair)


def held_out(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Split a corpus that has no published split, by the hash of each source; two runs agree.

    A source is in one split only, with all that translates it; a target that stands in test is kept out of
    the others, one in valid out of train. Held in memory: meant for some 100,000 pairs.
    """
    order = ("test", "valid", "train")
    divided = sorted((order.index(_drawn(src)), number, src, tgt) for number, (src, tgt) in enumerate(pairs))
    first_in: dict[str, int] = {}
    for split, _, src, tgt in divided:
        if first_in.setdefault(tgt, split) == split:
            yield order[split], src, tgt


def pairs_of(part: Part, src: Path, tgt: Path) -> Iterator[Pair]:
    """The pairs of a part whose texts lie at ``src`` and ``tgt``."""
    for number, (left, right) in enumerate(zip_longest(part.src.form(src), part.tgt.form(tgt))):
        if left is None or right is None:
            ends, goes_on = (src, tgt) if left is None else (tgt, src)
            raise ValueError(f"{ends} ends after {number:,} sentences, {goes_on} goes on: not parallel")
        yield left, right


def _drawn(src: str) -> str:
    """The split that a source belongs to."""
    share = int.from_bytes(hashlib.sha256(src.encode()).digest()[:8]) / 2**64
    return "test" if share < HELD_OUT_SHARE else "valid" if share < 2 * HELD_OUT_SHARE else "train"
