"""Tokeniser of word vocabularies.

It splits text as ``data.words`` does, but with a separate pattern: the tokeniser can be changed here without
changing the words that published figures are defined over.
"""

import re

from data.words import join_words, mark_words, unmarked

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
"""A word, with the hyphens and apostrophes inside it, or one punctuation character."""


def tokenize(text: str) -> list[str]:
    """Split ``text`` into tokens; a JOINER prefix marks those that no space precedes: Hello ￭, you ￭."""
    return mark_words(text, TOKEN)


def detokenize(tokens: list[str]) -> str:
    """Undo ``tokenize``; each run of white space in the original text becomes one space."""
    return join_words(tokens)


def surface_form(token: str) -> str:
    """Return the characters of the text that ``token`` stands for, without a JOINER."""
    return unmarked(token)
