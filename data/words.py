"""Split text into words and punctuation, and join them again without loss."""

import re

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
"""A word (inner hyphens and apostrophes belong to it), or one sign of punctuation."""

JOINER = "￭"
"""Stands before a token that follows its neighbour without a space."""


def split_words(text: str) -> list[str]:
    """Split ``text`` into words and punctuation signs: "Hello, you." gives Hello , you ."""
    return TOKEN.findall(text)


def mark_words(text: str) -> list[str]:
    """Split ``text`` and mark with JOINER what had no space before it: Hello ￭, you ￭."""
    tokens = []
    end = 0
    for match in TOKEN.finditer(text):
        joined = match.start() == end and end > 0
        tokens.append(JOINER + match.group() if joined else match.group())
        end = match.end()
    return tokens


def join_words(tokens: list[str]) -> str:
    """Undo ``mark_words``: the text with runs of white space reduced to one space."""
    return "".join(token[1:] if _is_marked(token) else f" {token}" for token in tokens).removeprefix(" ")


def unmarked(token: str) -> str:
    """``token`` without its mark, as shown to people."""
    return token[1:] if _is_marked(token) else token


def _is_marked(token: str) -> bool:
    """Whether ``token`` bears the mark; a JOINER alone is a sign of the text itself."""
    return len(token) > 1 and token.startswith(JOINER)
