"""Sentence pairs with gold links between their words, from a corpus of ours or from files of others.

Shapes: S source and T target words of a sentence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compare.analysis.alignment.pharaoh import Links, parse_pharaoh, read_links
from data.corpus import Corpus, Pairs, read_pairs
from data.words import split_words

BoolArray = NDArray[np.bool_]


class WordPair(NamedTuple):
    """A sentence pair as text, and as the words that links join."""

    src: str
    tgt: str
    src_words: tuple[str, ...]
    tgt_words: tuple[str, ...]


class GoldLinks(NamedTuple):
    """The links of a pair as matrices (T, S), one row a target word; ``possible`` holds the sure ones too."""

    sure: BoolArray
    possible: BoolArray


@dataclass(frozen=True, kw_only=True)
class Gold:
    """Sentence pairs and what people, or a grammar, say that their words translate."""

    pairs: tuple[WordPair, ...]
    links: tuple[GoldLinks, ...]
    """One entry a pair."""
    skipped: tuple[str, ...] = ()
    """The links left out because one of their ends is no word of its sentence, each in words."""

    def turned(self) -> "Gold":
        """The same links for a model of the other direction: sources are targets, targets sources."""
        return Gold(
            pairs=tuple(WordPair(pair.tgt, pair.src, pair.tgt_words, pair.src_words) for pair in self.pairs),
            links=tuple(GoldLinks(links.sure.T, links.possible.T) for links in self.links),
            skipped=self.skipped,
        )


def word_pairs(pairs: Pairs) -> tuple[WordPair, ...]:
    """Pairs with the words that ``split_words`` finds, which are those of the embedded corpus' links."""
    return tuple(
        WordPair(src, tgt, tuple(split_words(src)), tuple(split_words(tgt)))
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True)
    )


def get_split(corpus: Corpus, name: str) -> Pairs:
    """A corpus' split; ValueError, with the names there are, where it has none of that name."""
    if name not in corpus.splits:
        raise ValueError(
            f"corpus {corpus.name} has no split {name!r}: choose one of {', '.join(corpus.splits)}"
        )
    return corpus.splits[name]


def corpus_gold(corpus: Corpus, split: str) -> Gold:
    """The gold links that come with a corpus.

    Raises:
        ValueError: it has none, as every corpus but the embedded one, or no such split.
    """
    pairs = get_split(corpus, split)
    if not pairs.links:
        raise ValueError(
            f"corpus {corpus.name} has no gold links for {split}: "
            "align a run of the embedded corpus, or read links of your own with read_gold"
        )
    place = f"{corpus.name}.{split}"
    links = (parse_pharaoh(line, f"{place}, pair {n}") for n, line in enumerate(pairs.links, start=1))
    return _gold(word_pairs(pairs), links, place)


def read_gold(links: Path, src: Path, tgt: Path, *, first_word: int = 0) -> Gold:
    """Read links that others made, in Pharaoh's or NAACL's format, and the tokenised texts they are of.

    Args:
        links: the file of links, plain or .gz; see ``read_links``.
        src: the source text, plain or .gz, its words parted by white space.
        tgt: the target text, likewise.
        first_word: the number that the file gives to a sentence's first word.

    Raises:
        ValueError: the three do not belong together, or a line holds what is no link. A link past the end of
            its sentence, which such files happen to have, is none: it is left out, and named in ``skipped``.
    """
    texts = read_pairs(src, tgt)
    pairs = tuple(
        WordPair(one, other, tuple(one.split()), tuple(other.split()))
        for one, other in zip(texts.src, texts.tgt, strict=True)
    )
    return _gold(pairs, read_links(links, len(pairs), first_word=first_word), str(links))


def _gold(pairs: Sequence[WordPair], links: Iterable[Links], place: str) -> Gold:
    """Join pairs and their links, those past a sentence's end left out and named."""
    matrices, skipped = [], []
    for number, (pair, found) in enumerate(zip(pairs, links, strict=True), start=1):
        src, tgt = len(pair.src_words), len(pair.tgt_words)
        gold = GoldLinks(np.zeros((tgt, src), dtype=np.bool_), np.zeros((tgt, src), dtype=np.bool_))
        for i, j in sorted(found.possible):
            if 0 <= i < src and 0 <= j < tgt:
                gold.possible[j, i], gold.sure[j, i] = True, (i, j) in found.sure
            else:
                skipped.append(
                    f"{place}, sentence {number}: skipped link {i}-{j} (counted from 0): "
                    f"there are {src} source and {tgt} target words"
                )
        matrices.append(gold)
    return Gold(pairs=tuple(pairs), links=tuple(matrices), skipped=tuple(skipped))
