"""Files of word links that others made: Pharaoh's format, and that of the shared task of NAACL 2003.

Pharaoh: a line a sentence, "i-j" for a sure link of source word i and target word j; a possible one is
"i?j", "ipj" or "i-j:P", as one tool or another writes it. NAACL: a line a link, "sentence i j", then S or P
(S where nothing stands) and a confidence, which is not read (Mihalcea and Pedersen 2003).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from data.text.lines import read_lines

Link = tuple[int, int]
"""A source word and a target word, by their numbers from 0."""

PHARAOH = re.compile(r"(\d+)(?:-(\d+)(?::([SP]))?|[?p](\d+))", re.ASCII)
NAACL = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?", re.ASCII)


class Links(NamedTuple):
    """The links of a sentence; ``possible`` holds the sure ones too (Och and Ney 2003, section 5)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_pharaoh(line: str, place: str, *, first_word: int = 0) -> Links:
    """The links of one sentence in Pharaoh's format.

    Args:
        line: the links, white space between them; none at all is a sentence without links.
        place: where the line stands, for the error.
        first_word: the number that the file gives to a sentence's first word.

    Raises:
        ValueError: something in the line is no link.
    """
    marked = []
    for text in line.split():
        match = PHARAOH.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{place}: {text!r} is no link: write i-j for a sure one, i?j for a possible one"
            )
        link = (int(match[1]) - first_word, int(match[2] or match[4]) - first_word)
        marked.append((link, match[4] is None and match[3] != "P"))
    return _links(marked)


def read_links(path: Path, sentences: int, *, first_word: int = 0) -> tuple[Links, ...]:
    """Read a file of links, plain or .gz; its first link tells which of the two formats it has.

    Args:
        path: the file.
        sentences: how many sentences the text has; NAACL's format passes over those without links.
        first_word: the number of a sentence's first word, which is 0 in most files and 1 in some, those of
            the shared task among them.

    Raises:
        ValueError: a line is no link, or the links are of more or fewer sentences.
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
    """Sort the links of a file in NAACL's format by sentence; sentences are counted from 1."""
    marked: list[list[tuple[Link, bool]]] = [[] for _ in range(sentences)]
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = NAACL.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{path}, line {number}: {line!r} is no link: write sentence, i, j, and S or P")
        sentence = int(match[1])
        if not 1 <= sentence <= sentences:
            raise ValueError(
                f"{path}, line {number}: no sentence {sentence} in a text of {sentences}: "
                "give the text that the links are of"
            )
        link = (int(match[2]) - first_word, int(match[3]) - first_word)
        marked[sentence - 1].append((link, match[4] != "P"))
    return tuple(_links(links) for links in marked)


def _links(marked: Sequence[tuple[Link, bool]]) -> Links:
    """Links from pairs of a link and whether it is sure; one that is given as both is sure."""
    return Links(
        sure=frozenset(link for link, sure in marked if sure),
        possible=frozenset(link for link, _ in marked),
    )
