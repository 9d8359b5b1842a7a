"""What a model attends to while it is made to write given translations, from word to word.

Shapes: B pairs, T' target and S' source pieces, T and S words, H heads of a layer, C heads and means in all.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from compare.analysis.alignment.gold import WordPair
from compare.analysis.alignment.pieces import merge_pieces, shared_bytes
from compare.decoding.translator import Translator
from data.batch import make_source_batch, padded
from data.encoded_split import Sequences
from data.loader import decode_batches
from data.symbols import BOS

FloatArray = NDArray[np.float64]
LayerWeights = Mapping[str, FloatArray]
"""Weights (H, T', S') of a pair by the name of the layer."""

CROSS_ATTENTION = "cross"
"""Attention from target to source, as models name it: alone, or "cross.0" in a model of several layers."""


class AttentionHead(NamedTuple):
    """A head of a layer, or a mean of heads; both are counted from 0."""

    layer: str
    """As the model names it; ``CROSS_ATTENTION`` in a model of several layers is the mean of all its heads."""
    number: int | None
    """None is the mean of the layer's heads."""

    def __str__(self) -> str:
        return f"{self.layer} mean" if self.number is None else f"{self.layer} head {self.number}"


class WordAttention(NamedTuple):
    """The weights of one pair, which do not include the end of sentence of either side."""

    number: int
    """The pair's place in what was given."""
    heads: tuple[AttentionHead, ...]
    """Every head of every layer; then the mean of each layer of several heads, and that of all layers."""
    weights: FloatArray
    """(C, T, S), one entry a head; a row lacks what its word gave to the source's end of sentence."""


@torch.inference_mode()
def attend_words(translator: Translator, pairs: Sequence[WordPair]) -> Iterator[WordAttention]:
    """Force a model to write the target of each pair, and give the weights of every head.

    Pairs come longest first. A model without attention to the source yields nothing.
    """
    vocabularies = translator.vocabularies
    sources = vocabularies.src.encode_all(pair.src for pair in pairs)
    targets = vocabularies.tgt.encode_all(pair.tgt for pair in pairs)
    lengths = np.array([max(len(src), len(tgt)) for src, tgt in zip(sources, targets, strict=True)])
    for rows in decode_batches(lengths, translator.decode.batch_tokens):
        batch = [(sources[row], targets[row]) for row in rows]
        for row, (src, tgt), layers in zip(rows, batch, _force(translator, batch), strict=True):
            if not layers:
                return
            pair = pairs[row]
            heads, weights = _with_means(layers)
            shared_tgt = shared_bytes(vocabularies.tgt, pair.tgt, tgt, pair.tgt_words)
            shared_src = shared_bytes(vocabularies.src, pair.src, src, pair.src_words)
            yield WordAttention(int(row), heads, merge_pieces(weights, shared_tgt, shared_src))


def _force(translator: Translator, batch: Sequence[tuple[list[int], list[int]]]) -> Iterator[LayerWeights]:
    """The weights of each pair of a batch; none where the model has no attention to the source."""
    src, src_mask = (part.to(translator.device) for part in make_source_batch([src for src, _ in batch]))
    tgt_in, _ = padded(Sequences.of([tgt for _, tgt in batch]), first=BOS)
    translator.model.eval()
    found = translator.model.attention(src, src_mask, torch.from_numpy(tgt_in).to(translator.device))
    cross = {
        name: weights.double().cpu().numpy()  # (B, H, T' + 1, S' + 1): the last ones are the ends of sentence
        for name, weights in found.items()
        if name.split(".")[0] == CROSS_ATTENTION
    }
    for row, (one, other) in enumerate(batch):
        yield {name: weights[row, :, : len(other), : len(one)] for name, weights in cross.items()}


def _with_means(layers: LayerWeights) -> tuple[tuple[AttentionHead, ...], FloatArray]:
    """The heads of all layers and their means, and the weights (C, T', S') of each."""
    heads = [
        AttentionHead(layer, number) for layer, weights in layers.items() for number in range(len(weights))
    ]
    means = [layer for layer, weights in layers.items() if len(weights) > 1]
    weights = [*layers.values(), *(layers[layer].mean(axis=0, keepdims=True) for layer in means)]
    heads += [AttentionHead(layer, None) for layer in means]
    if len(layers) > 1:
        heads.append(AttentionHead(CROSS_ATTENTION, None))
        weights.append(np.concatenate(list(layers.values())).mean(axis=0, keepdims=True))
    return tuple(heads), np.concatenate(weights)
