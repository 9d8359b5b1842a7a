"""Attention weights of the layers of a model, with the tokens and words that they lie between."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.subwords import ESCAPE_SEQUENCE, SPACE, UNESCAPED
from data.symbols import SPECIALS
from data.vocabulary import WORD_TOKEN

# Attention weights of the layers of a model, with the tokens that they lie between.
#
# Shapes: H heads of a layer.


Weights = NDArray[np.float32]
CROSS = "cross"
"""Name of the attention to the source; "cross.0" and so on in a model of several layers."""
KINDS = {
    CROSS: ("translation", "source"),
    "encoder": ("source", "source"),
    "decoder": ("translation", "translation so far"),
}
"""Names of the axes (rows, columns) of each kind of attention, by the first part of a layer's name."""


class Layer(NamedTuple):
    """One attention of a model: the weights of its heads, and what they lie between."""

    name: str
    """Such as "cross.0"."""
    weights: Weights
    """(H, rows, columns)."""
    rows: Sequence[str]
    columns: Sequence[str]

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return kind_of(self.name)


def kind_of(layer: str) -> str:
    """Return the kind of attention of a layer, one of ``KINDS``."""
    return layer.split(".")[0]


# Join the pieces of a vocabulary to words, by their labels alone.
#
# No text is needed: a model may write pieces into which no text is divided.


BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
"""The label that SentencePiece gives to a piece that is a single byte, and to no other piece."""
BROKEN = "surrogateescape"
"""Keeps bytes that are no UTF-8, which a model may write, in their places."""


class WordGroups(NamedTuple):
    """Consecutive pieces that make up words."""

    words: list[str]
    """The words, punctuation marks and special symbols."""
    group: list[int]
    """For each piece the index of its word."""


def group_pieces(kind: str, pieces: Sequence[str]) -> WordGroups:
    """Join pieces to words and punctuation marks, as ``data.vocabulary`` divides a text.

    A piece that reaches over a border of words joins both; special symbols stay alone.

    Args:
        kind: kind of the vocabulary; the pieces of "words" are words already.
        pieces: labels of the pieces, as ``Vocabulary.pieces`` gives them.
    """
    if kind == "words":
        return WordGroups(list(pieces), list(range(len(pieces))))
    words: list[str] = []
    group: list[int] = []
    start = 0
    for end in range(len(pieces) + 1):
        if end == len(pieces) or pieces[end] in SPECIALS:
            for run in _join(pieces[start:end]):
                group += [len(words)] * len(run)
                words.append(join_label(run))
            if end < len(pieces):
                group.append(len(words))
                words.append(pieces[end])
            start = end + 1
    return WordGroups(words, group)


def join_label(pieces: Sequence[str]) -> str:
    """Return the text of consecutive pieces without the spaces around it; a lone space stays visible."""
    text = b"".join(map(_text_bytes, pieces)).decode(errors="replace")
    return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPED[match.group()], text).strip() or SPACE


def _join(pieces: Sequence[str]) -> list[Sequence[str]]:
    """Divide pieces without special symbols into those of each word."""
    parts = [_text_bytes(piece) for piece in pieces]
    borders = _word_starts(b"".join(parts).decode(errors=BROKEN))
    starts = accumulate(map(len, parts), initial=0)
    first = [
        place
        for place, start in zip(range(len(parts)), starts, strict=False)
        if start in borders or not place
    ]
    return [pieces[begin:end] for begin, end in pairwise([*first, len(pieces)])]


def _word_starts(text: str) -> set[int]:
    """Return the positions in bytes at which words begin; the spaces before a word belong to it."""
    ends = [0, *(match.end() for match in WORD_TOKEN.finditer(text))]
    return {len(text[:end].encode(errors=BROKEN)) for end in ends[:-1]}


def _text_bytes(piece: str) -> bytes:
    """Return the bytes of the text that a piece stands for."""
    if match := BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(SPACE, " ").encode(errors=BROKEN)
