"""Helpers for tests of the built-in corpus: the links of a pair, and the definition of a word."""

from data.grammar import AlignedPair

Splits = dict[str, list[AlignedPair]]


def links_of(pair: AlignedPair) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in (link.split("-") for link in pair.links.split())]


def is_word(token: str) -> bool:
    return token[0].isalnum()
