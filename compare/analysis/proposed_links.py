"""Links that a word aligner proposes: Pharaoh and GIZA++ files, two directions combined, scores.

References:
- Koehn et al. 2005, Edinburgh System Description for the 2005 IWSLT Speech Translation Evaluation. IWSLT.
"""

import re
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compare.analysis.gold_alignments import AlignmentCounts, Gold, Link, describe_outside, read_links
from data.text import read_lines

# Files of GIZA++ (A3.final): three lines per sentence pair, with its words.
#
#     # Sentence pair (1) source length 2 target length 3 alignment score : 0.01
#     the red dog
#     NULL ({ }) le ({ 1 }) chien ({ 3 }) rouge ({ 2 })
#
# Each word of the third line is linked to the words of the second line whose numbers, from 1, stand beside
# it; NULL is linked to those that have no other link. Which of both sentences is the source depends on how
# GIZA++ was called.


HEADER = re.compile(r"# Sentence pair \((\d{1,9})\) ", re.ASCII)
ENTRY = re.compile(r"(\S+) \(\{((?: \d{1,9})*) \}\)(?: |$)", re.ASCII)
EXAMPLE = "'# Sentence pair (1) ', 'the red dog' and 'NULL ({ }) le ({ 1 }) chien ({ 3 }) rouge ({ 2 })'"


def is_giza(lines: Sequence[str]) -> bool:
    """Tell whether the lines of a file are in this format."""
    return bool(lines) and HEADER.match(lines[0]) is not None


def parse_giza(
    path: Path, lines: Sequence[str], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[frozenset[Link]]:
    """Parse a file; its words tell which side is the source.

    Args:
        path: the file, which error messages name.
        lines: its lines.
        pairs: source and target words of every sentence of the text; their case is ignored.

    Returns:
        The links of each sentence, source to target, in the order of ``pairs``.

    Raises:
        ValueError: a line is malformed, or the file has other sentences than the text.
    """
    words: dict[int, list[list[str]]] = {}  # of the third and of the second line, by the number of the pair
    links: dict[int, list[Link]] = {}
    for start in range(0, len(lines), 3):
        header, numbered, last = (*lines[start : start + 3], "", "")[:3]
        match, entries = HEADER.match(header), list(ENTRY.finditer(last.strip()))
        whole = "".join(entry[0] for entry in entries) == last.strip()
        if not (match and entries and whole and entries[0][1] == "NULL"):
            raise ValueError(
                f"{path}, line {start + 1}: expected the three lines of a sentence pair, such as {EXAMPLE}"
            )
        listed = entries[1:]
        words[int(match[1])] = [[entry[1] for entry in listed], numbered.split()]
        links[int(match[1])] = [
            (i, int(number) - 1) for i, entry in enumerate(listed) for number in entry[2].split()
        ]
    if sorted(words) != list(range(1, len(pairs) + 1)):
        raise ValueError(
            f"{path} has {len(words)} sentence pairs numbered up to {max(words)}, but the text has "
            f"{len(pairs)}: give the text that was aligned (GIZA++ leaves out empty and long sentences)"
        )
    found = [_fold(*words[number]) for number in sorted(words)]
    forward = [each == _fold(*pair) for each, pair in zip(found, pairs, strict=True)]
    backward = [each == _fold(*pair[::-1]) for each, pair in zip(found, pairs, strict=True)]
    if not (all(forward) or all(backward)):
        number = 1 + max(forward.index(False), backward.index(False))
        first, second = map(" ".join, words[number])
        raise ValueError(
            f"{path}: sentence pair {number} is not that of the text: found {first!r:.60} and "
            f"{second!r:.60}: give the text that was aligned"
        )
    ordered = [links[number] for number in sorted(links)]
    return [frozenset(each if all(forward) else [(j, i) for i, j in each]) for each in ordered]


def _fold(*sides: Sequence[str]) -> list[list[str]]:
    """Return the words of both sides without their case."""
    return [[word.casefold() for word in words] for words in sides]


# Symmetrisation: one alignment from those of both directions (Och and Ney 2003, section 4).
#
# An alignment is the set of links of one sentence pair, from source to target.


Alignment = frozenset[Link]

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final_and(forward: Alignment, backward: Alignment) -> Alignment:
    """Grow the intersection towards the union (Koehn et al. 2005, section 2.3, as in Moses).

    "grow-diag": again and again, a link of the union is added that is a neighbour of one in the alignment,
    also diagonally, and has a word without link. Links are visited by target word, then source word, those
    that are added ahead in the same pass, as Moses does. "final-and": a link of either direction, the forward
    one first, is added if neither of its words has a link.
    """
    union, links = forward | backward, sorted(forward & backward, key=_by_target)
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        insort(links, link, key=_by_target)
        sources.add(link[0])
        targets.add(link[1])

    before = -1
    while before < len(links):
        before = len(links)
        link: Link | None = links[0] if links else None
        while link:
            for step_i, step_j in NEIGHBOURS:
                other = (link[0] + step_i, link[1] + step_j)
                free = other[0] not in sources or other[1] not in targets
                if free and other in union:  # which no link of the alignment is
                    add(other)
            following = bisect_right(links, _by_target(link), key=_by_target)
            link = links[following] if following < len(links) else None
    for direction in (forward, backward):
        for link in sorted(direction, key=_by_target):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return frozenset(links)


def _by_target(link: Link) -> tuple[int, int]:
    return link[1], link[0]


SYMMETRISATIONS: dict[str, Callable[[Alignment, Alignment], Alignment]] = {
    "intersection": frozenset.intersection,
    "union": frozenset.union,
    "grow-diag-final-and": grow_diag_final_and,
}
"""Symmetrisations by name."""


def symmetrise(alignments: Mapping[str, Sequence[Alignment]]) -> dict[str, tuple[Alignment, ...]]:
    """Combine the alignments of a text in two directions by each of ``SYMMETRISATIONS``.

    Args:
        alignments: of both directions by name, one alignment per sentence pair, all source to target.

    Returns:
        The combined alignments, by both names and that of the symmetrisation.
    """
    (one, forward), (other, backward) = alignments.items()
    return {
        f"{one} + {other}: {name}": tuple(map(combine, forward, backward))
        for name, combine in SYMMETRISATIONS.items()
    }


# Links that a word aligner proposes: its output files and their scores.


class ProposedLinks(NamedTuple):
    """The links of an aligner's output file."""

    links: tuple[frozenset[Link], ...]
    """The links of each sentence pair, source to target, words counted from 0."""
    outside: str
    """Message on the links to words that their sentence does not have; empty if there are none."""


def read_proposed_links(
    path: str | Path, gold: Gold, *, first_word: int = 0, reverse: bool = False
) -> ProposedLinks:
    """Read the output of a word aligner.

    Args:
        path: the file, plain or .gz: Pharaoh format (fast_align, eflomal, awesome-align, SimAlign), NAACL
            format, or A3.final of GIZA++, whose words tell its direction and which counts from 1.
        gold: the sentence pairs that were aligned.
        first_word: the number that the file gives to the first word of a sentence.
        reverse: the links are target-source, not source-target.

    Raises:
        ValueError: a line is malformed, or the file has another number of sentences than ``gold``, or, in
            the format of GIZA++, other sentences.
    """
    path = Path(path)
    lines = read_lines(path, allow_blank=True)
    if is_giza(lines):
        links = parse_giza(path, lines, [(pair.src_words, pair.tgt_words) for pair in gold.pairs])
    else:
        read = read_links(path, len(gold.pairs), first_word=first_word)
        links = [(each.exchanged() if reverse else each).possible for each in read]
    return ProposedLinks(tuple(links), describe_outside(str(path), links, [pair.size for pair in gold.pairs]))


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
