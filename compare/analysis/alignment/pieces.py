"""Which words the pieces of a vocabulary write, and weights between pieces turned into those between words.

Shapes: T' target and S' source pieces of a pair, T and S words; P and W pieces and words of either side.
Places in a text are counted in bytes of UTF-8, for a subword vocabulary writes rare characters byte by byte.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from data.subwords import ESCAPED, SPACE
from data.vocabulary import Vocabulary
from data.words import split_words

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
"""The label of a piece that is a single byte; SentencePiece gives it to no other."""


def shared_bytes(vocabulary: Vocabulary, text: str, ids: Sequence[int], words: Sequence[str]) -> IntArray:
    """How many bytes of each word each piece writes, (P, W).

    A piece may write one word, a part of one, several ("?!"), or none, as a space does.

    Args:
        vocabulary: any of the four kinds.
        text: what was encoded.
        ids: the pieces that ``vocabulary`` encodes it to.
        words: the words of ``text`` in their order, with nothing but white space between them.
    """
    pieces, edges = _pieces(vocabulary, text, ids)
    found = edges[_places(text, words)]
    starts = np.maximum(pieces[:, None, 0], found[None, :, 0])
    ends = np.minimum(pieces[:, None, 1], found[None, :, 1])
    shared: IntArray = np.maximum(ends - starts, 0)
    return shared


def merge_pieces(weights: NDArray[np.floating], tgt: IntArray, src: IntArray) -> FloatArray:
    """Weights between words, from weights between pieces.

    What the pieces of a source word get is added up, for attention is a distribution over the source, and
    the share of a word is that of its parts; what the pieces of a target word give is averaged, so that its
    row is a distribution again (Koehn and Knowles 2017, section 3.5). A source piece that writes several
    words parts its weight among them by the bytes of each. Pieces that write no word count for nothing.

    Args:
        weights: (..., T', S').
        tgt: bytes that pieces and words of the target share, (T', T).
        src: those of the source, (S', S).

    Returns:
        Weights (..., T, S); a row adds up to what its pieces gave to the words of the source.
    """
    parts = src / np.maximum(src.sum(axis=1, keepdims=True), 1)
    writes = tgt > 0
    means = writes / np.maximum(writes.sum(axis=0), 1)
    merged: FloatArray = means.T @ weights @ parts
    return merged


def _pieces(vocabulary: Vocabulary, text: str, ids: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Where each piece begins and ends (P, 2), and the edges of the text's characters, both in bytes."""
    if vocabulary.kind in ("words", "characters"):
        edges = _edges(len(character.encode()) for character in text)
        words = vocabulary.kind == "words"
        return edges[_places(text, split_words(text))] if words else _between(edges), edges
    # SentencePiece writes a space as SPACE, and one more before the text.
    written = (ESCAPED.get(character, character).replace(" ", SPACE) for character in text)
    edges = len(SPACE.encode()) + _edges(len(part.encode()) for part in written)
    labels = vocabulary.pieces(ids)
    return _between(
        _edges(1 if BYTE_PIECE.fullmatch(label) else len(label.encode()) for label in labels)
    ), edges


def _edges(lengths: Iterable[int]) -> IntArray:
    """The places between parts of these lengths that follow each other; one more than there are parts."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def _between(edges: IntArray) -> IntArray:
    """Where each part begins and ends, (n, 2), from n + 1 edges."""
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _places(text: str, words: Sequence[str]) -> IntArray:
    """Where each of ``words`` begins and ends in ``text``, in characters; (W, 2)."""
    places, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        places.append((start, end))
    return np.array(places, dtype=np.int64).reshape(-1, 2)
