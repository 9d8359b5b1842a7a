"""Attention between words: pieces joined to words, links from weights, and entropy.

References:
- Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to? IJCNLP.
- Luong et al. 2015, Effective Approaches to Attention-based Neural Machine Translation. EMNLP.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from compare.analysis.gold_alignments import WordPair
from compare.attention.layers import BYTE_PIECE, CROSS, AttentionHead, kind_of, with_means
from compare.decoding.translator import Translator
from data.batches import decode_batches, make_source_batch, padded
from data.encode import Sequences
from data.subwords import ESCAPED, SPACE
from data.symbols import BOS
from data.vocabulary import Vocabulary, split_words

# Map the pieces of a vocabulary to words, and weights between pieces to weights between words.
#
# Shapes: T' target and S' source pieces of a pair, T and S words; P pieces and W words of either side.
# Positions in a text are in bytes of UTF-8, because subword vocabularies write rare characters byte by byte.


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
            return edges[_word_spans(text, split_words(text))], edges
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


# Attention weights between words under forced decoding of given translations.
#
# Shapes: B pairs, T' target and S' source pieces, T and S words, H heads of a layer, C heads and means of
# heads.


LayerWeights = Mapping[str, FloatArray]
"""Weights (H, T', S') of a sentence pair by name of the layer."""


class WordAttention(NamedTuple):
    """Attention weights of one sentence pair, without the end-of-sentence token of either side."""

    number: int
    """Index of the pair in the argument of ``attend_words``."""
    heads: tuple[AttentionHead, ...]
    """All heads of all layers; then the mean of each layer with several heads, and the mean of all layers."""
    weights: FloatArray
    """(C, T, S); a row lacks the weight of the source's end-of-sentence token."""


@torch.inference_mode()
def attend_words(translator: Translator, pairs: Sequence[WordPair]) -> Iterator[WordAttention]:
    """Compute attention weights between words under forced decoding of the target sentences.

    Args:
        translator: a model with its vocabularies.
        pairs: the sentence pairs.

    Yields:
        One entry per pair, longest pairs first; nothing for a model without attention to the source.
    """
    vocabularies = translator.vocabularies
    sources = vocabularies.src.encode_all(pair.src for pair in pairs)
    targets = vocabularies.tgt.encode_all(pair.tgt for pair in pairs)
    lengths = np.array([max(len(src), len(tgt)) for src, tgt in zip(sources, targets, strict=True)])
    for indices in decode_batches(lengths, translator.decode.batch_tokens):
        batch = [(sources[index], targets[index]) for index in indices]
        batch_weights = _force_decode(translator, batch)
        for index, (src, tgt), layers in zip(indices, batch, batch_weights, strict=True):
            if not layers:
                return
            pair = pairs[index]
            heads, weights = with_means(layers)
            shared_tgt = shared_bytes(vocabularies.tgt, pair.tgt, tgt, pair.tgt_words)
            shared_src = shared_bytes(vocabularies.src, pair.src, src, pair.src_words)
            yield WordAttention(int(index), heads, merge_pieces(weights, shared_tgt, shared_src))


def _force_decode(
    translator: Translator, batch: Sequence[tuple[list[int], list[int]]]
) -> Iterator[LayerWeights]:
    """Yield the weights of each pair of a batch; no layers if the model has no attention to the source."""
    src, src_mask = (part.to(translator.device) for part in make_source_batch([src for src, _ in batch]))
    tgt_in, _ = padded(Sequences.of([tgt for _, tgt in batch]), first=BOS)
    translator.model.eval()
    attention = translator.model.attention(src, src_mask, torch.from_numpy(tgt_in).to(translator.device))
    cross = {
        name: weights.double().cpu().numpy()  # (B, H, T' + 1, S' + 1); the last entries are end of sentence
        for name, weights in attention.items()
        if kind_of(name) == CROSS
    }
    for row, (src_ids, tgt_ids) in enumerate(batch):
        yield {name: weights[row, :, : len(tgt_ids), : len(src_ids)] for name, weights in cross.items()}


# Methods that derive word links from attention weights, and the diagonal baseline.
#
# Shapes: T target and S source words; leading dimensions are heads. Links are bool, (..., T, S).


WeightArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]

ARG_MAX = "arg max"
"""Name of the method that is most common in the literature."""
SHIFTS = (0, -1, 1, -2, 2)
"""Numbers of source words by which all links of a head are moved, nearest first."""
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
"""Minimum weights of a link; the best one is chosen on the validation split."""


class Method(NamedTuple):
    """A method that derives links from weights (..., T, S)."""

    name: str
    threshold: float | None
    """None for a method without threshold; methods with the same name differ only in this."""
    links: Callable[[WeightArray], BoolArray]


def arg_max(weights: WeightArray) -> BoolArray:
    """Link each target word to the source word with the largest weight (Luong et al. 2015, section 5.4).

    Of equal weights the first counts. A target word whose weights are all 0, because the model attended to
    the end of sentence only, has no link.

    Args:
        weights: (..., T, S).

    Returns:
        Links (..., T, S).
    """
    links: BoolArray = np.zeros(weights.shape, dtype=np.bool_)
    best = weights.argmax(axis=-1)[..., None]
    np.put_along_axis(links, best, np.take_along_axis(weights, best, axis=-1) > 0, axis=-1)
    return links


def mutual_arg_max(weights: WeightArray) -> BoolArray:
    """Keep the links that ``arg_max`` finds both over source words and over target words.

    This is the intersection of two alignment directions (Och and Ney 2003, section 4), here both derived from
    one weight matrix.

    Args:
        weights: (..., T, S).

    Returns:
        Links (..., T, S).
    """
    over_targets = arg_max(weights.swapaxes(-1, -2)).swapaxes(-1, -2)
    return arg_max(weights) & over_targets


def shift_links(links: BoolArray, by: int) -> BoolArray:
    """Move links by a number of source words, to the right if positive; those that leave the sentence go.

    Args:
        links: (..., T, S).
        by: number of words.

    Returns:
        Links (..., T, S).
    """
    moved: BoolArray = np.roll(links, by, axis=-1)
    if by > 0:
        moved[..., :by] = False
    elif by < 0:
        moved[..., by:] = False
    return moved


def above_threshold(weights: WeightArray, threshold: float) -> BoolArray:
    """Link all pairs of words with a weight of at least ``threshold``; a word may have several links or none.

    Args:
        weights: (..., T, S).
        threshold: 0 to 1.

    Returns:
        Links (..., T, S).
    """
    return weights >= threshold


def diagonal(tgt_words: int, src_words: int) -> BoolArray:
    """Link each target word to the source word at the same relative position; returns (T, S)."""
    links: BoolArray = np.zeros((tgt_words, src_words), dtype=np.bool_)
    positions = np.arange(tgt_words)
    # The source word that contains the middle of the target word.
    links[positions, (2 * positions + 1) * src_words // (2 * tgt_words)] = True
    return links


METHODS = (
    Method(ARG_MAX, None, arg_max),
    Method("intersection", None, mutual_arg_max),
    *(Method("threshold", value, partial(above_threshold, threshold=value)) for value in THRESHOLDS),
)
"""All methods that derive links from weights."""


def method_number(name: str) -> int:
    """Return the index in ``METHODS`` of "arg max", "intersection", or a threshold such as "0.2".

    Raises:
        ValueError: there is no such method.
    """
    names = [each.name if each.threshold is None else str(each.threshold) for each in METHODS]
    if name not in names:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(names)}")
    return names.index(name)


# Entropy of attention: how evenly each target word spreads its weight over the source words.
#
# Shapes: C heads, T target and S source words of a pair.


class AttentionEntropy(NamedTuple):
    """Sums of entropies over target words, each (C,); sums of several sentence pairs may be added."""

    nats: FloatArray
    """Sum of the entropies."""
    words: FloatArray
    """Target words in ``nats``; a word that gives no source word any weight has no entropy."""
    share: FloatArray
    """Sum of the entropies as shares of their maximum log S, over pairs of more than one source word."""
    shared_words: FloatArray
    """Target words in ``share``."""

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean entropy in nats and the mean share of log S, each (C,); NaN without any word."""
        return _ratio(self.nats, self.words), _ratio(self.share, self.shared_words)

    def plus(self, other: "AttentionEntropy") -> "AttentionEntropy":
        """Return the sums over the sentence pairs of both."""
        return AttentionEntropy(*(one + another for one, another in zip(self, other, strict=True)))


def entropy(weights: FloatArray) -> FloatArray:
    """Compute the entropy of attention, -sum p log p over the source words (Ghader and Monz 2017).

    Args:
        weights: (..., T, S), at least 0; each row is normalised to sum to 1.

    Returns:
        Entropies in nats, (..., T); NaN for a row whose weights are all 0.
    """
    p = _ratio(weights, weights.sum(axis=-1, keepdims=True))
    nats: FloatArray = 0 - (p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)  # unary minus would give -0.0
    return nats


def sum_entropy(weights: FloatArray) -> AttentionEntropy:
    """Sum the entropies over the target words of one sentence pair.

    Args:
        weights: (C, T, S).
    """
    nats = entropy(weights)
    total, words = np.nansum(nats, axis=-1), np.isfinite(nats).sum(axis=-1).astype(np.float64)
    source_words = weights.shape[-1]
    if source_words == 1:
        return AttentionEntropy(total, words, np.zeros_like(total), np.zeros_like(words))
    return AttentionEntropy(total, words, total / math.log(source_words), words)


def none_if_nan(value: float) -> float | None:
    """Return ``value``, or None if it is NaN, as tables represent a missing figure."""
    return None if math.isnan(value) else float(value)


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; NaN where ``denominator`` is 0."""
    ratio: FloatArray = np.divide(
        numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0
    )
    return ratio
