"""Examination of a block of raw pairs: the part of the first pass that needs no other pair."""

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from data.prepare.filters import Filters, clean_all
from data.prepare.line_hashes import HASH_BYTES, hash_all, normalise_all
from data.text.characters import unspaced
from data.text.formats import PairBlock


class BlockFindings(NamedTuple):
    """Findings on the N pairs of a block."""

    kept: bytes
    """1 per pair that no rule drops, else 0, (N,)."""
    dropped: Counter[str]
    """Number of dropped pairs by rule."""
    src_hashes: bytes
    """``hash_text`` of each source, cleaned and normalised; zeros where the pair is dropped."""
    tgt_hashes: bytes
    """Likewise of each target."""
    words: set[str]
    """Words of the kept pairs, normalised; empty if they were not asked for."""
    words_before_unspaced: set[str] | None
    """Those before the first pair with Chinese characters or kana; None if there is none."""


def examine_blocks(filters: Filters, request: tuple[list[PairBlock], bool]) -> list[BlockFindings]:
    """Apply the filters that need no other pair, and hash the texts.

    Args:
        filters: the rules.
        request: several blocks of pairs as read, and whether words are asked for.
    """
    blocks, with_words = request
    return [_examine(filters, block, with_words) for block in blocks]


def _examine(filters: Filters, block: PairBlock, with_words: bool) -> BlockFindings:
    src, tgt = map(clean_all, block)
    reasons = filters.drop_reasons(src, tgt)
    kept = [not reason for reason in reasons]
    left, right = (normalise_all(list(compress(lines, kept))) for lines in (src, tgt))
    words, before = _words(left, right) if with_words else (set[str](), None)
    return BlockFindings(
        kept=bytes(kept),
        dropped=Counter(filter(None, reasons)),
        src_hashes=_spread(hash_all(left), kept),
        tgt_hashes=_spread(hash_all(right), kept),
        words=words,
        words_before_unspaced=before,
    )


def _spread(hashes: Sequence[bytes], kept: Sequence[bool]) -> bytes:
    """Join hashes, with zeros where a pair is dropped."""
    if len(hashes) == len(kept):
        return b"".join(hashes)
    zero, remaining = bytes(HASH_BYTES), iter(hashes)
    return b"".join(next(remaining) if is_kept else zero for is_kept in kept)


def _words(src: Sequence[str], tgt: Sequence[str]) -> tuple[set[str], set[str] | None]:
    """Collect the words of all pairs, and those before the first unspaced one."""
    both = list(zip(src, tgt, strict=True))
    first = next((row for row, (left, right) in enumerate(both) if unspaced(left) or unspaced(right)), None)
    before = None if first is None else _distinct(src[:first], tgt[:first])
    return _distinct(src, tgt), before


def _distinct(src: Sequence[str], tgt: Sequence[str]) -> set[str]:
    return set(" ".join([*src, *tgt]).split())
