"""Attention weights between words under forced decoding of given translations.

Shapes: B pairs, T' target and S' source pieces, T and S words, H heads of a layer, C heads and means of
heads.
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
from data.loader import decode_batches
from data.sequences import Sequences
from data.symbols import BOS

FloatArray = NDArray[np.float64]
LayerWeights = Mapping[str, FloatArray]
"""Weights (H, T', S') of a sentence pair by name of the layer."""

CROSS_ATTENTION = "cross"
"""The models' name of encoder-decoder attention; "cross.0" and so on in a model of several layers."""


class AttentionHead(NamedTuple):
    """An attention head of a layer, or a mean of heads."""

    layer: str
    """The model's name of the layer; ``CROSS_ATTENTION`` for the mean over all heads of several layers."""
    number: int | None
    """Counted from 0; None for a mean of heads."""

    def __str__(self) -> str:
        return f"{self.layer} mean" if self.number is None else f"{self.layer} head {self.number}"


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
            heads, weights = _with_means(layers)
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
        if name.split(".")[0] == CROSS_ATTENTION
    }
    for row, (src_ids, tgt_ids) in enumerate(batch):
        yield {name: weights[row, :, : len(tgt_ids), : len(src_ids)] for name, weights in cross.items()}


def _with_means(layers: LayerWeights) -> tuple[tuple[AttentionHead, ...], FloatArray]:
    """List the heads of all layers and their means, with the weights (C, T', S') of all."""
    heads = [
        AttentionHead(layer, number) for layer, weights in layers.items() for number in range(len(weights))
    ]
    averaged = [layer for layer, weights in layers.items() if len(weights) > 1]
    weights = [*layers.values(), *(layers[layer].mean(axis=0, keepdims=True) for layer in averaged)]
    heads += [AttentionHead(layer, None) for layer in averaged]
    if len(layers) > 1:
        heads.append(AttentionHead(CROSS_ATTENTION, None))
        weights.append(np.concatenate(list(layers.values())).mean(axis=0, keepdims=True))
    return tuple(heads), np.concatenate(weights)
