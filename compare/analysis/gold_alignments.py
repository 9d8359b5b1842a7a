"""Gold word links: files, the words they belong to, and alignment error rate.

References:
- Fraser and Marcu 2007, Measuring Word Alignment Quality for Statistical Machine Translation. Computational
  Linguistics 33(3).
- Mihalcea and Pedersen 2003, An Evaluation Exercise for Word Alignment. HLT-NAACL Workshop on Building and
  Using Parallel Texts.
- Och and Ney 2003, A Systematic Comparison of Various Statistical Alignment Models. Computational Linguistics
  29(1).
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.corpus import Corpus, Pairs, read_pairs
from data.text import read_lines
from data.vocabulary import split_words

# Alignment error rate, precision, recall and F1 of word links (Och and Ney 2003, section 5).
#
# A: proposed links, S: sure gold links, P: possible gold links (S is a subset of P); each is counted over all
# sentences of a text. Shapes: T target and S source words; leading dimensions are heads.


BoolArray = NDArray[np.bool_]
CountArray = NDArray[np.int64]
"""(..., 4), the fields of ``AlignmentCounts`` in their order; counts of several sentences may be added."""


class AlignmentCounts(NamedTuple):
    """Numbers of links, and the scores computed from them; a score whose denominator is 0 is None."""

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
        return _ratio(self.possible_matches, self.proposed)

    @property
    def recall(self) -> float | None:
        """|A ∩ S| / |S|."""
        return _ratio(self.sure_matches, self.sure)

    @property
    def aer(self) -> float | None:
        """Alignment error rate, 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), from 0 (best) to 1."""
        ratio = _ratio(self.sure_matches + self.possible_matches, self.proposed + self.sure)
        return None if ratio is None else 1 - ratio

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


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# Files of word links in Pharaoh format and in the format of the NAACL 2003 shared task.
#
# Pharaoh format has one line per sentence. "i-j" is a sure link of source word i and target word j. A
# possible link is "i?j", "ipj" or "i-j:P", depending on the tool.
#
# NAACL format has one line per link: "sentence i j", then optionally S or P (default S) and a confidence,
# which is ignored (Mihalcea and Pedersen 2003).


Link = tuple[int, int]
"""Numbers of a source word and a target word, counted from 0."""

PHARAOH = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([SP]))?|[?p](\d{1,9}))", re.ASCII)
NAACL = re.compile(r"(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})(?:\s+([SP]))?(?:\s+[\d.]+)?", re.ASCII)


class Links(NamedTuple):
    """The links of a sentence; ``possible`` includes the sure links."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def exchanged(self) -> "Links":
        """Return the links with source and target exchanged."""
        return Links(*(frozenset((j, i) for i, j in links) for links in self))


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
    marked_links = []
    for text in line.partition("|||")[0].split():
        match = PHARAOH.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{context}: {text!r:.60} is not a link: write i-j for a sure one, i?j for a possible one"
            )
        link = (int(match[1]) - first_word, int(match[2] or match[4]) - first_word)
        marked_links.append((link, match[4] is None and match[3] != "P"))
    return _to_links(marked_links)


def read_links(path: Path, sentences: int, *, first_word: int = 0) -> tuple[Links, ...]:
    """Read a file of links in either format; a file with any line of NAACL format is read as such.

    Args:
        path: the file, plain or .gz.
        sentences: number of sentences of the text; NAACL format has no lines for sentences without links.
        first_word: the number of the first word of a sentence: 0 in most files, 1 in some, such as those of
            the shared task.

    Returns:
        The links of each sentence.

    Raises:
        ValueError: a line is malformed, or the file does not fit the number of sentences.
    """
    lines = read_lines(path, allow_blank=True)
    if any(NAACL.fullmatch(line.strip()) for line in lines):
        return _read_naacl(path, lines, sentences, first_word)
    if len(lines) != sentences:
        raise ValueError(
            f"{path} has links of {len(lines)} sentences, but the text has {sentences}: "
            "line i must link the words of sentence i"
        )
    return tuple(
        parse_pharaoh(line, f"{path}, line {number}", first_word=first_word)
        for number, line in enumerate(lines, start=1)
    )


def _read_naacl(path: Path, lines: Sequence[str], sentences: int, first_word: int) -> tuple[Links, ...]:
    """Group the links of a file in NAACL format by sentence; sentences are counted from 1."""
    marked_links: list[list[tuple[Link, bool]]] = [[] for _ in range(sentences)]
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = NAACL.fullmatch(line.strip())
        if match is None:
            raise ValueError(
                f"{path}, line {number}: {line!r:.60} is not a link: write sentence, i, j, and S or P"
            )
        sentence = int(match[1])
        if not 1 <= sentence <= sentences:
            raise ValueError(
                f"{path}, line {number}: no sentence {sentence} in a text of {sentences}: "
                "give the text to which the links belong"
            )
        link = (int(match[2]) - first_word, int(match[3]) - first_word)
        marked_links[sentence - 1].append((link, match[4] != "P"))
    return tuple(_to_links(marks) for marks in marked_links)


def _to_links(marked_links: Sequence[tuple[Link, bool]]) -> Links:
    """Collect links that are marked as sure (True) or possible (False); a link marked as both is sure."""
    return Links(
        sure=frozenset(link for link, sure in marked_links if sure),
        possible=frozenset(link for link, _ in marked_links),
    )


# Links to words that their sentence does not have: in published gold links, or from a file read wrongly.


Size = tuple[int, int]
"""Number of source and of target words of a sentence pair."""
READINGS: dict[str, Callable[[int, int], Link]] = {
    "with source and target exchanged": lambda i, j: (j, i),
    "with words counted from 1": lambda i, j: (i - 1, j - 1),
    "with words counted from 0": lambda i, j: (i + 1, j + 1),
}
"""Other readings of a file: from the numbers of a link to those that it would have."""


def links_outside(links: Collection[Link], size: Size) -> frozenset[Link]:
    """Select the links, counted from 0, to words that a sentence pair of this size does not have."""
    return frozenset((i, j) for i, j in links if not (0 <= i < size[0] and 0 <= j < size[1]))


def describe_outside(context: str, links: Sequence[Collection[Link]], sizes: Sequence[Size]) -> str:
    """Report the links to words that their sentences do not have.

    Args:
        context: beginning of the message, such as the file.
        links: the links of each sentence pair, counted from 0.
        sizes: the sizes of the sentence pairs.

    Returns:
        One line: their number, the first of them, and the number in another reading of the file if that has
        less than half as many. Empty if there are none.
    """
    outside = [links_outside(*each) for each in zip(links, sizes, strict=True)]
    count = sum(map(len, outside))
    if not count:
        return ""
    first = next(index for index, part in enumerate(outside) if part)
    (i, j), (src, tgt) = min(outside[first]), sizes[first]
    message = (
        f"{context}: {count:,} of {sum(map(len, links)):,} links, in {sum(map(bool, outside)):,} of "
        f"{len(sizes):,} sentences, are to words that the sentence does not have (the first: sentence "
        f"{first + 1}, {i}-{j} counted from 0, with {src} source and {tgt} target words)"
    )
    for name, read in READINGS.items():
        other = [
            links_outside([read(*link) for link in part], size)
            for part, size in zip(links, sizes, strict=True)
        ]
        if 2 * sum(map(len, other)) < count:
            message += f"; {name} it would be {sum(map(len, other)):,}"
    return message


# Sentence pairs with gold word links, from a corpus or from alignment files.


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
    outside: str = ""
    """Message on these; empty if there are none."""

    def turned(self) -> "Gold":
        """Return the same links with source and target exchanged, for a model of the other direction."""
        return Gold(
            pairs=tuple(WordPair(pair.tgt, pair.src, pair.tgt_words, pair.src_words) for pair in self.pairs),
            links=tuple(links.exchanged() for links in self.links),
            outside=self.outside,
        )

    def count(self, number: int, links: BoolArray) -> CountArray:
        """Count proposed links (..., T, S) of a pair against its gold links; see ``count_links``."""
        gold, size = self.links[number], self.pairs[number].size
        outside = len(links_outside(gold.sure, size))
        sure, possible = (link_matrix(part, size) for part in gold)
        return count_links(links, sure, possible, sure_outside=outside)


def word_pairs(pairs: Pairs) -> tuple[WordPair, ...]:
    """Split sentence pairs into words with ``split_words``, as the links of the built-in corpus expect."""
    return tuple(
        WordPair(src, tgt, tuple(split_words(src)), tuple(split_words(tgt)))
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True)
    )


def get_split(corpus: Corpus, name: str) -> Pairs:
    """Return a split of a corpus.

    Raises:
        ValueError: the corpus has no split of that name; the message lists its splits.
    """
    if name not in corpus.splits:
        raise ValueError(
            f"corpus {corpus.name} has no split {name!r}: choose one of {', '.join(corpus.splits)}"
        )
    return corpus.splits[name]


def corpus_gold(corpus: Corpus, split: str) -> Gold:
    """Return the gold links that come with a corpus.

    Raises:
        ValueError: the corpus has no gold links (only the built-in corpus has), or no such split.
    """
    pairs = get_split(corpus, split)
    if not pairs.links:
        raise ValueError(
            f"corpus {corpus.name} has no gold links for {split}: "
            "align a run of the built-in corpus, or read links of your own with read_gold"
        )
    context = f"{corpus.name}.{split}"
    links = (parse_pharaoh(line, f"{context}, pair {n}") for n, line in enumerate(pairs.links, start=1))
    return Gold(pairs=word_pairs(pairs), links=tuple(links))


def read_gold(links: str | Path, src: str | Path, tgt: str | Path, *, first_word: int = 0) -> Gold:
    """Read gold links in Pharaoh or NAACL format, and the tokenised texts that they align.

    A link to a word that its sentence does not have, which published files do contain, is reported in
    ``Gold.outside``. It counts as a gold link that no alignment finds, as in published scores.

    Args:
        links: the file of links, plain or .gz; see ``read_links``.
        src: the source text, plain or .gz, words separated by white space.
        tgt: the target text, likewise.
        first_word: the number that the file gives to the first word of a sentence.

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
    found = read_links(Path(links), len(pairs), first_word=first_word)
    sizes = [pair.size for pair in pairs]
    message = describe_outside(str(links), [each.possible for each in found], sizes)
    return Gold(pairs=pairs, links=found, outside=message)
