"""Rules for dropping pairs of a raw corpus; the manifest counts the dropped pairs by rule."""

from collections.abc import Sequence
from dataclasses import dataclass

from data.text.characters import BROKEN, count_words

EMPTY = "empty"
BROKEN_TEXT = "broken"
COPY = "copy"
MAX_WORDS = "max_words"
MAX_RATIO = "max_ratio"
DUPLICATE = "duplicate"
OVERLAP = "overlap"
REASONS = (EMPTY, BROKEN_TEXT, COPY, MAX_WORDS, MAX_RATIO, DUPLICATE, OVERLAP)
"""Names of the rules, in the order in which they are applied."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Settings of the rules; pairs with a blank side are always dropped.

    Raises:
        ValueError: a limit is out of range.
    """

    max_words: int = 0
    """Drop pairs with more words than this on either side; 0: no limit."""
    max_ratio: float = 0.0
    """Drop pairs with more words on one side than this many times those of the other; 0: no limit."""
    drop_copies: bool = False
    """Drop pairs whose target equals the source."""
    drop_broken: bool = False
    """Drop pairs with control characters, U+FFFD or bytes that are not UTF-8 (else an error)."""
    drop_duplicates: bool = False
    """Of pairs that are equal after ``normalise`` on both sides, keep only the first."""
    drop_overlap: bool = False
    """Drop training pairs whose source or target, normalised, occurs in a given valid or test set."""

    def __post_init__(self) -> None:
        """Reject limits that would drop everything."""
        if self.max_words < 0:
            raise ValueError(f"max_words must be at least 0, found {self.max_words}")
        if self.max_ratio and not self.max_ratio >= 1:
            raise ValueError(f"max_ratio must be 0 or at least 1, found {self.max_ratio:g}")

    def drop_reason(self, src: str, tgt: str) -> str:
        """Apply the rules that need no other pair.

        Args:
            src: source text, cleaned by ``clean``.
            tgt: target text, likewise.

        Returns:
            The first of ``REASONS`` that applies; empty if the pair is kept.
        """
        if not src or not tgt:
            return EMPTY
        if self.drop_broken and (BROKEN.search(src) or BROKEN.search(tgt)):
            return BROKEN_TEXT
        if self.drop_copies and src == tgt:
            return COPY
        if self.max_words or self.max_ratio:
            shorter, longer = sorted((count_words(src), count_words(tgt)))
            if 0 < self.max_words < longer:
                return MAX_WORDS
            if self.max_ratio and longer > self.max_ratio * shorter:
                return MAX_RATIO
        return ""

    def drop_reasons(self, src: Sequence[str], tgt: Sequence[str]) -> list[str]:
        """Apply ``drop_reason`` to each pair."""
        has_rules = self.max_words or self.max_ratio or self.drop_copies or self.drop_broken
        if not has_rules and all(src) and all(tgt):
            return [""] * len(src)
        return list(map(self.drop_reason, src, tgt))


def clean_all(lines: Sequence[str]) -> list[str]:
    """Apply ``clean`` to each line."""
    if "\ufeff" in "".join(lines):
        return list(map(clean, lines))
    return [line.strip() for line in lines]


def clean(text: str) -> str:
    """Remove white space at both ends, and byte order marks, which joined files have in the middle."""
    return text.replace("\ufeff", "").strip()
