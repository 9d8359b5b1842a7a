"""Map the pieces of a vocabulary to words, and weights between pieces to weights between words.

Shapes: T' target and S' source pieces of a pair, T and S words; P pieces and W words of either side.
Positions in a text are in bytes of UTF-8, because subword vocabularies write rare characters byte by byte.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from compare.attention.word_groups import BYTE_PIECE
from data.subwords import ESCAPED, SPACE
from data.vocabulary import Vocabulary
from data.word_tokenizer import surface_form, tokenize

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def shared_bytes(vocabulary: Vocabulary, text: str, ids: Sequence[int], words: Sequence[str]) -> IntArray:
    """Count the bytes that each piece shares with each word.

    A piece may contain one word, part of one, several ("?!"), or none, such as a space.

    Args:
        vocabulary: a vocabulary of any kind.
        text: the text that was encoded.
        ids: the pieces of ``text`` in ``vocabulary``.
        words: the words of ``text`` in their order, with only white space between them.

    Returns:
        Numbers of bytes (P, W).
    """
    piece_spans, char_edges = _piece_spans(vocabulary, text, ids)
    word_spans = char_edges[_word_spans(text, words)]
    starts = np.maximum(piece_spans[:, None, 0], word_spans[None, :, 0])
    ends = np.minimum(piece_spans[:, None, 1], word_spans[None, :, 1])
    shared: IntArray = np.maximum(ends - starts, 0)
    return shared


def merge_pieces(weights: NDArray[np.floating], tgt: IntArray, src: IntArray) -> FloatArray:
    """Merge attention weights between pieces into weights between words.

    Weights of the pieces of a source word are summed, those of the pieces of a target word are averaged, so
    that the weights of a target word are a distribution again (Koehn and Knowles 2017, section 3.5). The
    weight of a source piece that contains several words is divided among them in proportion to their bytes.
    Pieces that contain no word are ignored.

    Args:
        weights: (..., T', S').
        tgt: bytes that target pieces and words share, (T', T).
        src: bytes that source pieces and words share, (S', S).

    Returns:
        Weights (..., T, S); a row sums to the mean weight that its pieces gave to pieces with source words.
    """
    src_shares = src / np.maximum(src.sum(axis=1, keepdims=True), 1)
    overlaps = tgt > 0
    tgt_means = overlaps / np.maximum(overlaps.sum(axis=0), 1)
    merged: FloatArray = tgt_means.T @ weights @ src_shares
    return merged


def _piece_spans(vocabulary: Vocabulary, text: str, ids: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Return start and end of each piece (P, 2), and the edges of the characters of the text, in bytes."""
    if vocabulary.kind in ("words", "characters"):
        edges = _edges(len(character.encode()) for character in text)
        if vocabulary.kind == "words":
            return edges[_word_spans(text, [surface_form(token) for token in tokenize(text)])], edges
        return _spans(edges), edges
    # SentencePiece writes a space as SPACE, and adds one before the text.
    normalised = (ESCAPED.get(character, character).replace(" ", SPACE) for character in text)
    edges = len(SPACE.encode()) + _edges(len(part.encode()) for part in normalised)
    labels = vocabulary.pieces(ids)
    lengths = (1 if BYTE_PIECE.fullmatch(label) else len(label.encode()) for label in labels)
    return _spans(_edges(lengths)), edges


def _edges(lengths: Iterable[int]) -> IntArray:
    """Return the n + 1 edges of n consecutive parts with these lengths."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def _spans(edges: IntArray) -> IntArray:
    """Return start and end of each part, (n, 2), from n + 1 edges."""
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _word_spans(text: str, words: Sequence[str]) -> IntArray:
    """Return start and end of each word in ``text``, in characters, (W, 2)."""
    spans, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        spans.append((start, end))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
