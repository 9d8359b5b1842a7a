"""Attention of the layers of a model between tokens, means over heads, and pieces joined to words.

Shapes: H heads of a layer.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.vocabulary import ESCAPE_SEQUENCE, SPACE, SPECIALS, TOKEN, UNESCAPED

Weights = NDArray[Any]
CROSS = "cross"
"""The models' name of the attention to the source; "cross.0" and so on in a model of several layers."""
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


class AttentionHead(NamedTuple):
    """An attention head of a layer, or a mean of heads."""

    layer: str
    """The model's name of the layer; the kind of attention for the mean over all heads of several layers."""
    number: int | None
    """Counted from 0; None for a mean of heads."""

    def __str__(self) -> str:
        """Name it as people count: "layer 1, head 2"; self-attention with its side before."""
        kind, _, layer = self.layer.partition(".")
        side = "" if kind == CROSS else f"{kind} "
        if not layer:
            return f"mean of all {side}heads" if self.number is None else f"{side}head {self.number + 1}"
        name = "mean" if self.number is None else f"head {self.number + 1}"
        return f"{side}layer {int(layer) + 1 if layer.isdecimal() else layer}, {name}"


def with_means(layers: Mapping[str, Weights]) -> tuple[tuple[AttentionHead, ...], Weights]:
    """List the heads of layers of one kind, then the means of layers with several heads, then that of all.

    Args:
        layers: at least one, weights (H, rows, columns) by name.

    Returns:
        The C heads and means, and their weights (C, rows, columns).
    """
    heads = [
        AttentionHead(name, number) for name, weights in layers.items() for number in range(len(weights))
    ]
    parts = list(layers.values())
    for name, weights in layers.items():
        if len(weights) > 1:
            heads.append(AttentionHead(name, None))
            parts.append(weights.mean(axis=0, keepdims=True))
    if len(layers) > 1:
        heads.append(AttentionHead(kind_of(next(iter(layers))), None))
        parts.append(np.concatenate(list(layers.values())).mean(axis=0, keepdims=True))
    return tuple(heads), np.concatenate(parts)


def merge_pieces(weights: Weights, tgt: Weights, src: Weights) -> Weights:
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
    merged: Weights = (overlaps / np.maximum(overlaps.sum(axis=0), 1)).T @ weights @ src_shares
    return merged


# Join the pieces of a vocabulary to words, by their labels alone: a model may write pieces into which no text
# is divided.


BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
"""The label that SentencePiece gives to a piece that is a single byte, and to no other piece."""
BROKEN = "surrogateescape"
"""Keeps bytes that are no UTF-8, which a model may write, in their places."""


def group_pieces(kind: str, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Join pieces to words and punctuation marks, as ``data.vocabulary`` divides a text.

    A piece that reaches over a border of words joins both; special symbols stay alone.

    Args:
        kind: kind of the vocabulary; the pieces of "words" and "given" stay as they are.
        pieces: labels of the pieces, as ``Vocabulary.pieces`` gives them.

    Returns:
        The words, and for each piece the index of its word.
    """
    if kind in ("words", "given"):
        return list(pieces), list(range(len(pieces)))
    words: list[str] = []
    group: list[int] = []
    for special, found in groupby(pieces, key=SPECIALS.__contains__):
        run = list(found)
        for part in [[piece] for piece in run] if special else _divide(run):
            group += [len(words)] * len(part)
            words.append(part[0] if special else _text_of(part))
    return words, group


def _divide(pieces: Sequence[str]) -> list[Sequence[str]]:
    """Divide pieces without special symbols into those of each word, with the spaces before it."""
    parts = [_bytes_of(piece) for piece in pieces]
    text = b"".join(parts).decode(errors=BROKEN)
    ends = [0, *(match.end() for match in TOKEN.finditer(text))]
    borders = {len(text[:end].encode(errors=BROKEN)) for end in ends[:-1]}
    starts = list(accumulate(map(len, parts), initial=0))[:-1]
    first = [index for index, start in enumerate(starts) if start in borders or not index]
    return [pieces[begin:end] for begin, end in pairwise([*first, len(pieces)])]


def _bytes_of(piece: str) -> bytes:
    """Return the bytes of the text that a piece stands for."""
    if match := BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(SPACE, " ").encode(errors=BROKEN)


def _text_of(pieces: Sequence[str]) -> str:
    """Return the text of consecutive pieces without the spaces around it; a lone space stays visible."""
    text = b"".join(map(_bytes_of, pieces)).decode(errors="replace")
    return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPED[match.group()], text).strip() or SPACE
