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
"""The fields of ``AlignmentCounts``, (..., 4); counts of several sentences may be added."""
Link = tuple[int, int]
"""Numbers of a source word and a target word, from 0."""
Size = tuple[int, int]
"""Number of source and of target words."""


class AlignmentCounts(NamedTuple):
    """Numbers of links |A|, |S|, |A ∩ S| and |A ∩ P|, and scores (Och and Ney 2003, section 5)."""

    proposed: int
    sure: int
    sure_matches: int
    possible_matches: int

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
        """Alignment error rate, 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)."""
        links = self.proposed + self.sure
        return 1 - (self.sure_matches + self.possible_matches) / links if links else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall, 1 - AER if all gold links are sure.

        Otherwise F1 is more reliable: AER favours few and safe links (Fraser and Marcu 2007).
        """
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def scores(self) -> dict[str, float | None]:
        """Return the scores by name, for a table."""
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall, "f1": self.f1}


# Sentence pairs with gold links.


class Links(NamedTuple):
    """The links of a sentence; ``possible`` includes the sure links."""

    sure: frozenset[Link]
    possible: frozenset[Link]

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
    """Select links to words that a sentence pair of this size does not have."""
    return frozenset((i, j) for i, j in links if not (0 <= i < size[0] and 0 <= j < size[1]))


def link_matrix(links: Collection[Link], size: Size) -> BoolArray:
    """Return links as a matrix (T, S), without those outside."""
    matrix: BoolArray = np.zeros(size[::-1], dtype=np.bool_)
    for i, j in frozenset(links) - links_outside(links, size):
        matrix[j, i] = True
    return matrix


@dataclass(frozen=True, kw_only=True)
class Gold:
    """Sentence pairs with their gold links."""

    pairs: tuple[WordPair, ...]
    links: tuple[Links, ...]
    """Links of each pair; published files contain links to words that do not exist."""

    def count(self, number: int, links: BoolArray) -> CountArray:
        """Count proposed links (..., T, S) of a pair as a ``CountArray``.

        Gold links outside the sentence match nothing, but count in |S|, as in published scores.
        """
        gold, size = self.links[number], self.pairs[number].size
        sure, possible = (link_matrix(part, size) for part in gold)
        proposed, sure_matches, possible_matches = (
            part.sum(axis=(-1, -2), dtype=np.int64) for part in (links, links & sure, links & possible)
        )
        all_sure = np.full_like(proposed, len(gold.sure))
        return np.stack([proposed, all_sure, sure_matches, possible_matches], axis=-1)


def word_pairs(pairs: Pairs, kind: str = "") -> tuple[WordPair, ...]:
    """Split sentence pairs into words with ``text_words``."""
    return tuple(
        WordPair(src, tgt, tuple(text_words(src, kind)), tuple(text_words(tgt, kind)))
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True)
    )


def corpus_gold(corpus: Corpus, split: str, kind: str = "") -> Gold:
    """Return a split of a corpus with its gold links, empty if the corpus has none."""
    pairs = corpus.splits[split]
    lines = pairs.links or [""] * len(pairs.src)
    links = (parse_pharaoh(line, f"{corpus.name}.{split}, pair {n}") for n, line in enumerate(lines, start=1))
    return Gold(pairs=word_pairs(pairs, kind), links=tuple(links))


# Files of word links in Pharaoh format, which has one line per sentence. "i-j" is a sure link of source word
# i and target word j. A possible link is "i?j", "ipj" or "i-j:P", depending on the tool.


PHARAOH = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([SP]))?|[?p](\d{1,9}))", re.ASCII)


def parse_pharaoh(line: str, context: str, *, first_word: int = 0) -> Links:
    """Parse the links of one sentence in Pharaoh format; ``|||`` and what follows is ignored.

    ``context`` names file and line in the ValueError for a malformed link. ``first_word`` is the file's
    number of the first word.
    """
    marked = []
    for text in line.partition("|||")[0].split():
        match = PHARAOH.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{context}: {text!r:.60} is not a link: write i-j for a sure link, i?j for a possible one"
            )
        link = (int(match[1]) - first_word, int(match[2] or match[4]) - first_word)
        marked.append((link, match[4] is None and match[3] != "P"))
    # A link that is marked as both is sure.
    return Links(frozenset(link for link, sure in marked if sure), frozenset(link for link, _ in marked))


def read_links(path: Path, sentences: int, *, first_word: int = 0) -> list[Links]:
    """Read the links of each sentence from a plain or .gz file in Pharaoh format.

    Raises ValueError if a line is malformed, or the file does not fit the number of sentences.
    """
    lines = read_lines(path, allow_blank=True)
    if re.fullmatch(r"\d+ \d+ \d+( [SP])?", lines[0]):
        raise ValueError(
            f"{path} is in NAACL format, with one link per line ({lines[0]}): convert it to Pharaoh format, "
            "with all links of a sentence on one line (1-1 2?3)"
        )
    if len(lines) != sentences:
        raise ValueError(
            f"{path} has links of {len(lines)} sentences, but the text has {sentences}: "
            "line i must link the words of sentence i"
        )
    numbered = enumerate(lines, start=1)
    return [parse_pharaoh(line, f"{path}, line {n}", first_word=first_word) for n, line in numbered]


def _warn_of_outside(path: Path, links: Sequence[Collection[Link]], pairs: Sequence[WordPair]) -> None:
    outside = [len(links_outside(proposed, pair.size)) for proposed, pair in zip(links, pairs, strict=True)]
    if any(outside):
        first = next(number for number, count in enumerate(outside, start=1) if count)
        logger.warning(
            f"{path}: {sum(outside):,} of {sum(map(len, links)):,} links are outside their sentences "
            f"(the first: sentence {first}). They count as links. Check the direction of the links and the "
            "number of the first word."
        )


def read_gold(
    links: str | Path, src: str | Path, tgt: str | Path, *, first_word: int = 0, reverse: bool = False
) -> Gold:
    """Read gold links in Pharaoh format, and the tokenised texts that they align.

    A link outside its sentence, as in some published files, counts as one that no alignment has.

    Args:
        links: the file of links, plain or .gz.
        src: the source text, words separated by white space.
        tgt: the target text, likewise.
        first_word: the file's number of the first word of a sentence.
        reverse: the links are target-source.

    Raises:
        ValueError: the files differ in their number of sentences, or a line of ``links`` is malformed.
    """
    pairs = word_pairs(read_pairs(Path(src), Path(tgt)), "given")
    read = read_links(Path(links), len(pairs), first_word=first_word)
    gold_links = tuple(sentence.exchanged() if reverse else sentence for sentence in read)
    _warn_of_outside(Path(links), [sentence.possible for sentence in gold_links], pairs)
    return Gold(pairs=pairs, links=gold_links)


# Links that a word aligner proposes.


def read_proposed_links(path: str | Path, gold: Gold) -> tuple[frozenset[Link], ...]:
    """Read the links of a word aligner, source to target, from 0, in Pharaoh format.

    Raises ValueError if a line is malformed or the number of sentences is not that of ``gold``.
    """
    links = [sentence.possible for sentence in read_links(Path(path), len(gold.pairs))]
    _warn_of_outside(Path(path), links, gold.pairs)
    return tuple(links)


def count_proposed_links(links: Sequence[Collection[Link]], gold: Gold) -> AlignmentCounts:
    """Count the links of an aligner against gold links; links outside sentences count too."""
    pairs = list(zip(gold.links, links, strict=True))
    return AlignmentCounts(
        proposed=sum(map(len, links)),
        sure=sum(len(sentence.sure) for sentence in gold.links),
        sure_matches=sum(len(sentence.sure.intersection(part)) for sentence, part in pairs),
        possible_matches=sum(len(sentence.possible.intersection(part)) for sentence, part in pairs),
    )
