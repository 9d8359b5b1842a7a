"""Word links: files of gold links and of word aligners, and alignment error rate.

A: proposed links, S: sure gold links, P: possible gold links (S is a subset of P); each is counted over all
sentences of a text. Shapes: T target and S source words; leading dimensions are heads.

References:
- Fraser and Marcu 2007, Measuring Word Alignment Quality for Statistical Machine Translation. Computational
  Linguistics 33(3).
- Och and Ney 2003, A Systematic Comparison of Various Statistical Alignment Models. Computational Linguistics
  29(1).
"""

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.corpus import Corpus, Pairs, read_pairs
from data.text import read_lines
from data.vocabulary import text_words

logger = logging.getLogger(__name__)

BoolArray = NDArray[np.bool_]
CountArray = NDArray[np.int64]
"""(..., 4), the fields of ``AlignmentCounts`` in their order; counts of several sentences may be added."""
Link = tuple[int, int]
"""Numbers of a source word and a target word, counted from 0."""
Size = tuple[int, int]
"""Number of source and of target words of a sentence pair."""


class AlignmentCounts(NamedTuple):
    """Numbers of links, and the scores (Och and Ney 2003, section 5); one whose denominator is 0 is None."""

    proposed: int
    """|A|."""
    sure: int
    """|S|."""
    sure_matches: int
    """|A ∩ S|."""
    possible_matches: int
    """|A ∩ P|."""

    @property
    def precision(self) -> float | None:
        """|A ∩ P| / |A|."""
        return self.possible_matches / self.proposed if self.proposed else None

    @property
    def recall(self) -> float | None:
        """|A ∩ S| / |S|."""
        return self.sure_matches / self.sure if self.sure else None

    @property
    def aer(self) -> float | None:
        """Alignment error rate, 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), from 0 (best) to 1."""
        links = self.proposed + self.sure
        return 1 - (self.sure_matches + self.possible_matches) / links if links else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall, which is 1 - AER if all gold links are sure.

        If some gold links are only possible, F1 is the more reliable score: AER then favours few and safe
        links (Fraser and Marcu 2007).
        """
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def scores(self) -> dict[str, float | None]:
        """Return the four scores by name, for a table."""
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall, "f1": self.f1}


def count_links(
    links: BoolArray, sure: BoolArray, possible: BoolArray, *, sure_outside: int = 0
) -> CountArray:
    """Count the links of one sentence.

    Args:
        links: proposed links, (..., T, S).
        sure: sure gold links, (T, S).
        possible: possible gold links, which include the sure ones, (T, S).
        sure_outside: number of sure gold links to words that the sentence does not have. No proposed link
            matches them, but they count in |S|, as in published scores.

    Returns:
        Counts (..., 4) in the order of ``AlignmentCounts``.
    """
    proposed, sure_matches, possible_matches = (
        part.sum(axis=(-1, -2), dtype=np.int64) for part in (links, links & sure, links & possible)
    )
    total = np.broadcast_to(sure.sum(dtype=np.int64) + sure_outside, proposed.shape)
    return np.stack([proposed, total, sure_matches, possible_matches], axis=-1)


# Sentence pairs with gold links.


class Links(NamedTuple):
    """The links of a sentence; ``possible`` includes the sure links."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    @classmethod
    def of(cls, marked: Sequence[tuple[Link, bool]]) -> "Links":
        """Collect links marked as sure (True) or possible (False); a link marked as both is sure."""
        return cls(frozenset(link for link, sure in marked if sure), frozenset(link for link, _ in marked))

    def exchanged(self) -> "Links":
        """Return the links with source and target exchanged."""
        return Links(*(frozenset((j, i) for i, j in links) for links in self))


class WordPair(NamedTuple):
    """A sentence pair as text, and as the words that links connect."""

    src: str
    tgt: str
    src_words: tuple[str, ...]
    tgt_words: tuple[str, ...]

    @property
    def size(self) -> Size:
        """Number of source and of target words."""
        return len(self.src_words), len(self.tgt_words)


def links_outside(links: Collection[Link], size: Size) -> frozenset[Link]:
    """Select the links to words that a sentence pair of this size does not have."""
    return frozenset((i, j) for i, j in links if not (0 <= i < size[0] and 0 <= j < size[1]))


def link_matrix(links: Collection[Link], size: Size) -> BoolArray:
    """Return links as a matrix (T, S), without those to words that the sentence pair does not have."""
    matrix: BoolArray = np.zeros(size[::-1], dtype=np.bool_)
    for i, j in frozenset(links) - links_outside(links, size):
        matrix[j, i] = True
    return matrix


@dataclass(frozen=True, kw_only=True)
class Gold:
    """Sentence pairs with their gold links, annotated by people or generated by a grammar."""

    pairs: tuple[WordPair, ...]
    links: tuple[Links, ...]
    """One entry per pair; published files contain links to words that the sentence does not have, too."""

    def count(self, number: int, links: BoolArray) -> CountArray:
        """Count proposed links (..., T, S) of a pair against its gold links; see ``count_links``."""
        gold, size = self.links[number], self.pairs[number].size
        sure, possible = (link_matrix(part, size) for part in gold)
        return count_links(links, sure, possible, sure_outside=len(links_outside(gold.sure, size)))


def word_pairs(pairs: Pairs, kind: str = "") -> tuple[WordPair, ...]:
    """Split sentence pairs into words with ``text_words``, as the links of the built-in corpus expect.

    Text for a vocabulary of kind "given" is split at spaces.
    """
    return tuple(
        WordPair(src, tgt, tuple(text_words(src, kind)), tuple(text_words(tgt, kind)))
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True)
    )


def corpus_gold(corpus: Corpus, split: str, kind: str = "") -> Gold:
    """Return a split of a corpus with its gold links; pairs of a corpus without links have none.

    Args:
        corpus: the corpus.
        split: name of the split.
        kind: kind of the vocabulary; "given": words are what spaces separate.
    """
    pairs = corpus.splits[split]
    lines = pairs.links or [""] * len(pairs.src)
    links = (parse_pharaoh(line, f"{corpus.name}.{split}, pair {n}") for n, line in enumerate(lines, start=1))
    return Gold(pairs=word_pairs(pairs, kind), links=tuple(links))


# Files of word links in Pharaoh format, which has one line per sentence. "i-j" is a sure link of source word
# i and target word j. A possible link is "i?j", "ipj" or "i-j:P", depending on the tool.


PHARAOH = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([SP]))?|[?p](\d{1,9}))", re.ASCII)


def parse_pharaoh(line: str, context: str, *, first_word: int = 0) -> Links:
    """Parse the links of one sentence in Pharaoh format.

    Args:
        line: the links, separated by white space; an empty line is a sentence without links. What follows
            "|||" is ignored (scores of fast_align).
        context: file and line, with which an error message begins.
        first_word: the number that the file gives to the first word of a sentence.

    Raises:
        ValueError: a part of the line is not a link.
    """
    marked = []
    for text in line.partition("|||")[0].split():
        match = PHARAOH.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{context}: {text!r:.60} is not a link: write i-j for a sure one, i?j for a possible one"
            )
        link = (int(match[1]) - first_word, int(match[2] or match[4]) - first_word)
        marked.append((link, match[4] is None and match[3] != "P"))
    return Links.of(marked)


def read_links(path: Path, sentences: int, *, first_word: int = 0) -> list[Links]:
    """Read the links of each sentence from a file in Pharaoh format.

    Args:
        path: the file, plain or .gz.
        sentences: number of sentences of the text.
        first_word: the number of the first word of a sentence, 0 in most files, 1 in some.

    Raises:
        ValueError: a line is malformed, or the file does not fit the number of sentences.
    """
    lines = read_lines(path, allow_blank=True)
    if len(lines) != sentences:
        raise ValueError(
            f"{path} has links of {len(lines)} sentences, but the text has {sentences}: "
            "line i must link the words of sentence i"
        )
    numbered = enumerate(lines, start=1)
    return [parse_pharaoh(line, f"{path}, line {n}", first_word=first_word) for n, line in numbered]


def _warn_of_outside(path: Path, links: Sequence[Collection[Link]], pairs: Sequence[WordPair]) -> None:
    """Log how many links are to words that their sentences do not have: a file may have been read wrongly."""
    outside = [len(links_outside(found, pair.size)) for found, pair in zip(links, pairs, strict=True)]
    if any(outside):
        first = next(number for number, count in enumerate(outside, start=1) if count)
        logger.warning(
            f"{path}: {sum(outside):,} of {sum(map(len, links)):,} links are to words that the sentence does "
            f"not have (the first: sentence {first}); they count. Is the direction right, and the number of "
            "the first word?"
        )


def read_gold(
    links: str | Path, src: str | Path, tgt: str | Path, *, first_word: int = 0, reverse: bool = False
) -> Gold:
    """Read gold links in Pharaoh format, and the tokenised texts that they align.

    A link to a word that its sentence does not have, which published files do contain, is warned of. It
    counts as a gold link that no alignment finds, as in published scores.

    Args:
        links: the file of links, plain or .gz; see ``read_links``.
        src: the source text, plain or .gz, words separated by white space.
        tgt: the target text, likewise.
        first_word: the number that the file gives to the first word of a sentence.
        reverse: the links are target-source, not source-target.

    Returns:
        The sentence pairs with their links, for ``measure_alignment``.

    Raises:
        ValueError: the three files differ in their number of sentences, or a line of ``links`` is malformed.
    """
    texts = read_pairs(Path(src), Path(tgt))
    pairs = tuple(
        WordPair(src_line, tgt_line, tuple(src_line.split()), tuple(tgt_line.split()))
        for src_line, tgt_line in zip(texts.src, texts.tgt, strict=True)
    )
    read = read_links(Path(links), len(pairs), first_word=first_word)
    found = tuple(each.exchanged() if reverse else each for each in read)
    _warn_of_outside(Path(links), [each.possible for each in found], pairs)
    return Gold(pairs=pairs, links=found)


# Links that a word aligner proposes.


def read_proposed_links(path: str | Path, gold: Gold) -> tuple[frozenset[Link], ...]:
    """Read the output of a word aligner: the links of each sentence pair, source to target, counted from 0.

    Args:
        path: the file, plain or .gz, in Pharaoh format (fast_align, eflomal, awesome-align, SimAlign).
        gold: the sentence pairs that were aligned.

    Raises:
        ValueError: a line is malformed, or the file has another number of sentences than ``gold``.
    """
    links = [each.possible for each in read_links(Path(path), len(gold.pairs))]
    _warn_of_outside(Path(path), links, gold.pairs)
    return tuple(links)


def count_proposed_links(links: Sequence[Collection[Link]], gold: Gold) -> AlignmentCounts:
    """Count the links of an aligner against gold links; links outside their sentences count too.

    Args:
        links: the links of each sentence pair.
        gold: the pairs with their gold links.
    """
    pairs = list(zip(gold.links, links, strict=True))
    return AlignmentCounts(
        proposed=sum(map(len, links)),
        sure=sum(len(each.sure) for each in gold.links),
        sure_matches=sum(len(each.sure.intersection(part)) for each, part in pairs),
        possible_matches=sum(len(each.possible.intersection(part)) for each, part in pairs),
    )
