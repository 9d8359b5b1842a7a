"""Files of GIZA++ (A3.final): three lines per sentence pair, with its words.

    # Sentence pair (1) source length 2 target length 3 alignment score : 0.01
    the red dog
    NULL ({ }) le ({ 1 }) chien ({ 3 }) rouge ({ 2 })

Each word of the third line is linked to the words of the second line whose numbers, from 1, stand beside it;
NULL is linked to those that have no other link. Which of both sentences is the source depends on how GIZA++
was called.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from compare.analysis.alignment.pharaoh import Link

HEADER = re.compile(r"# Sentence pair \((\d{1,9})\) ", re.ASCII)
ENTRY = re.compile(r"(\S+) \(\{((?: \d{1,9})*) \}\)(?: |$)", re.ASCII)
EXAMPLE = "NULL ({ }) le ({ 1 }) chien ({ 3 })"
LINES_PER_PAIR = 3

Words = Sequence[str]


class Sentence(NamedTuple):
    """A sentence pair of a file."""

    listed: list[str]
    """The words of the third line, without NULL."""
    numbered: list[str]
    """The words of the second line."""
    links: list[Link]
    """From listed to numbered words, counted from 0."""


def is_giza(lines: Sequence[str]) -> bool:
    """Tell whether the lines of a file are in this format."""
    return bool(lines) and HEADER.match(lines[0]) is not None


def parse_giza(
    path: Path, lines: Sequence[str], pairs: Sequence[tuple[Words, Words]]
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
    sentences = _parse_sentences(path, lines)
    if sorted(sentences) != list(range(1, len(pairs) + 1)):
        raise ValueError(
            f"{path} has {len(sentences)} sentence pairs numbered up to {max(sentences)}, but the text has "
            f"{len(pairs)}: give the text that was aligned (GIZA++ leaves out empty and long sentences)"
        )
    ordered = [sentences[number] for number in sorted(sentences)]
    different = [
        [_fold(each.listed, each.numbered) != _fold(*pair) for each, pair in zip(ordered, texts, strict=True)]
        for texts in (pairs, [(tgt, src) for src, tgt in pairs])
    ]
    if not any(different[0]):
        return [frozenset(each.links) for each in ordered]
    if not any(different[1]):
        return [frozenset((j, i) for i, j in each.links) for each in ordered]
    number = 1 + max(flags.index(True) for flags in different)
    listed, numbered, _ = sentences[number]
    raise ValueError(
        f"{path}: sentence pair {number} is not that of the text: found {' '.join(listed)!r:.60} and "
        f"{' '.join(numbered)!r:.60}: give the text that was aligned"
    )


def _parse_sentences(path: Path, lines: Sequence[str]) -> dict[int, Sentence]:
    """Parse the sentence pairs of a file by their numbers."""
    sentences = {}
    for start in range(0, len(lines), LINES_PER_PAIR):
        header, *rest = lines[start : start + LINES_PER_PAIR]
        match = HEADER.match(header)
        if match is None or len(rest) < LINES_PER_PAIR - 1:
            raise ValueError(
                f"{path}, line {start + 1}: expected the three lines of a sentence pair of GIZA++, the first "
                f"beginning '# Sentence pair (1) ', found {header!r:.60}"
            )
        sentences[int(match[1])] = _parse_entries(
            rest[0].split(), rest[1].strip(), f"{path}, line {start + 3}"
        )
    return sentences


def _parse_entries(numbered: list[str], line: str, context: str) -> Sentence:
    """Parse the third line of a sentence pair; ``numbered`` are the words of the second line."""
    entries = list(ENTRY.finditer(line))
    if "".join(entry[0] for entry in entries) != line or not entries or entries[0][1] != "NULL":
        raise ValueError(f"{context}: expected words with their links, such as {EXAMPLE}, found {line!r:.60}")
    words = [entry[1] for entry in entries[1:]]
    links = [(i, int(number) - 1) for i, entry in enumerate(entries[1:]) for number in entry[2].split()]
    return Sentence(words, numbered, links)


def _fold(*sides: Words) -> list[list[str]]:
    """Return the words of both sides without their case."""
    return [[word.casefold() for word in words] for words in sides]
