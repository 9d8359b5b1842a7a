"""Which pairs of a raw corpus are kept: each rule has a name, and what it drops is counted."""

from dataclasses import dataclass

from data.text.characters import BROKEN, count_words

EMPTY = "empty"
BROKEN_TEXT = "broken"
COPY = "copy"
WORDS = "max_words"
RATIO = "max_ratio"
DUPLICATE = "duplicate"
OVERLAP = "overlap"
REASONS = (EMPTY, BROKEN_TEXT, COPY, WORDS, RATIO, DUPLICATE, OVERLAP)
"""Why a pair may be dropped, in the order in which the rules are asked."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The rules of a corpus; a pair with a blank side always goes, for nothing translates it."""

    max_words: int = 0
    """Drop pairs with more words than this on a side; 0: any length."""
    max_ratio: float = 0.0
    """Drop pairs whose longer side has more than this many words for each of the shorter; 0: any ratio."""
    drop_copies: bool = False
    """Drop pairs whose target is the source itself."""
    drop_broken: bool = False
    """Drop pairs with control characters, U+FFFD, or bytes that are not UTF-8 (else the last is an error)."""
    drop_duplicates: bool = False
    """Keep the first of the pairs that differ in nothing but case, spaces and compatible forms."""
    drop_overlap: bool = False
    """Where valid and test are given: drop from train what has a source or a target of theirs."""

    def __post_init__(self) -> None:
        """Reject limits that would drop everything."""
        if self.max_words < 0:
            raise ValueError(f"max_words must be at least 0, found {self.max_words}")
        if self.max_ratio and not self.max_ratio >= 1:
            raise ValueError(f"max_ratio must be 0 or at least 1, found {self.max_ratio:g}")

    def reason(self, src: str, tgt: str) -> str:
        """Why this pair alone is dropped, one of ``REASONS``; empty where it is kept."""
        if not src or not tgt:
            return EMPTY
        if self.drop_broken and (BROKEN.search(src) or BROKEN.search(tgt)):
            return BROKEN_TEXT
        if self.drop_copies and src == tgt:
            return COPY
        if self.max_words or self.max_ratio:
            shorter, longer = sorted((count_words(src), count_words(tgt)))
            if 0 < self.max_words < longer:
                return WORDS
            if self.max_ratio and longer > self.max_ratio * shorter:
                return RATIO
        return ""


def cleaned(text: str) -> str:
    """``text`` without spaces at its ends and byte order marks, which joined files leave in their middle."""
    return text.replace("\ufeff", "").strip()
