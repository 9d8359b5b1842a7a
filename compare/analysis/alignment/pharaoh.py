"""Files of word links in Pharaoh format and in the format of the NAACL 2003 shared task.

Pharaoh format has one line per sentence. "i-j" is a sure link of source word i and target word j. A possible
link is "i?j", "ipj" or "i-j:P", depending on the tool.

NAACL format has one line per link: "sentence i j", then optionally S or P (default S) and a confidence, which
is ignored (Mihalcea and Pedersen 2003).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from data.text.lines import read_lines

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
