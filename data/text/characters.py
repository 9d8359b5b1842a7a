"""Characters that a corpus should not contain, and characters that count as one word each."""

import re

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, or a byte that was not UTF-8; neither can be written to a file."""
BROKEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff\ud800-\udfff]")
"""Controls except white space, replacement characters, noncharacters and surrogates."""

UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters and Japanese kana, as the inside of a character class of a regular expression."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def count_words(text: str) -> int:
    """Count words between white space; each Chinese character and Japanese kana counts as one word."""
    return len(_WORD.findall(text)) if _UNSPACED.search(text) else len(text.split())


def unspaced(text: str) -> bool:
    """Whether ``text`` contains Chinese characters or kana, which are written without spaces."""
    return _UNSPACED.search(text) is not None
