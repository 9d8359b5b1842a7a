"""The project's definition of a word, on which published figures depend.

Alignment links, REP score, word counts and the differences in the report are all defined over these words.
Changing them changes those figures. The tokeniser of word vocabularies is ``data.word_tokenizer``.
"""

import re

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
"""A word, with the hyphens and apostrophes inside it, or one punctuation character."""

JOINER = "￭"
"""Prefix of a token that no space separates from the previous token."""


def split_words(text: str) -> list[str]:
    """Split ``text`` into words and punctuation characters: "Hello, you." gives Hello , you ."""
    return TOKEN.findall(text)


def mark_words(text: str, pattern: re.Pattern[str] = TOKEN) -> list[str]:
    """Split ``text`` like ``split_words``, and prefix JOINER where no space precedes: Hello ￭, you ￭.

    Args:
        text: the text.
        pattern: a token; every character but white space must belong to one, or ``join_words`` loses it.
    """
    tokens = []
    end = 0
    for match in pattern.finditer(text):
        joined = match.start() == end and end > 0
        tokens.append(JOINER + match.group() if joined else match.group())
        end = match.end()
    return tokens


def join_words(tokens: list[str]) -> str:
    """Undo ``mark_words``; each run of white space in the original text becomes one space."""
    return "".join(token[1:] if _is_marked(token) else f" {token}" for token in tokens).removeprefix(" ")


def unmarked(token: str) -> str:
    """Remove the JOINER from ``token``, if it has one."""
    return token[1:] if _is_marked(token) else token


def _is_marked(token: str) -> bool:
    """Whether ``token`` has a JOINER prefix; a JOINER alone is a character of the text itself."""
    return len(token) > 1 and token.startswith(JOINER)
