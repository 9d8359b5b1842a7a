"""Characters that a corpus should not hold, or that count as words by themselves."""

import re

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, or a byte that was not UTF-8: no text that can be written to a file."""
BROKEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff\ud800-\udfff]")
"""What no sentence holds: controls but for spaces and line breaks, lost characters, noncharacters."""

UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def count_words(text: str) -> int:
    """The words of ``text`` between spaces; each Chinese character and Japanese kana is one by itself."""
    return len(_WORD.findall(text)) if _UNSPACED.search(text) else len(text.split())


def unspaced(text: str) -> bool:
    """Whether ``text`` has Chinese characters or kana, which are written without spaces."""
    return _UNSPACED.search(text) is not None
