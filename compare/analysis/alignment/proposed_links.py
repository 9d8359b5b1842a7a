"""Links that a word aligner proposes: its output files and their scores."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from compare.analysis.alignment.aer import AlignmentCounts
from compare.analysis.alignment.giza import is_giza, parse_giza
from compare.analysis.alignment.gold import Gold
from compare.analysis.alignment.outside import describe_outside
from compare.analysis.alignment.pharaoh import Link, read_links
from data.text.lines import read_lines


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
    sets = [each.as_sets() for each in gold.links]
    return AlignmentCounts(
        proposed=sum(map(len, links)),
        sure=sum(len(each.sure) for each in sets),
        sure_matches=sum(len(each.sure.intersection(part)) for each, part in zip(sets, links, strict=True)),
        possible_matches=sum(
            len(each.possible.intersection(part)) for each, part in zip(sets, links, strict=True)
        ),
    )
