"""Dropout of embeddings, words and layers, with masks per step or per sentence.

Shapes: B sentences, N batch rows, T time steps, F features, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from .config import Seq2SeqConfig
from .padded import PaddedSteps


def draw_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask in the shape of ``like``: 0 with this probability, else 1 / (1 - probability)."""
    return dropout(torch.ones_like(like), probability, training=True)


def drop_units(x: Tensor | PackedSequence | PaddedSteps, config: Seq2SeqConfig, training: bool) -> Tensor:
    """Drop units of the input of a layer.

    Args:
        x: packed, padded or (T, N, F).
        config: ``dropout``, and whether all steps of a sentence share a mask.
        training: nothing is dropped outside training.

    Returns:
        The entries of ``x``, packed or (T, N, F), with dropout.
    """
    entries = x if isinstance(x, Tensor) else x.data
    if not (training and config.regularisation.variational and config.dropout):
        return dropout(entries, config.dropout, training)
    if isinstance(x, PackedSequence):
        sizes = x.batch_sizes.tolist()
        rows = torch.cat([torch.arange(n) for n in sizes]).to(entries.device)
        mask = draw_mask(entries[: sizes[0]], config.dropout)
        return entries * mask.index_select(0, rows)
    return entries * draw_mask(entries[:1], config.dropout)


def embed_tokens(
    module: nn.Embedding, tokens: Tensor, config: Seq2SeqConfig, training: bool, time_dim: int
) -> Tensor:
    """Look up embeddings and drop entries, units and words of them, in training only.

    Args:
        module: the embeddings, (V, F).
        tokens: token ids, (B, T) or (T, B).
        config: the probabilities.
        training: nothing is dropped outside training.
        time_dim: dimension of T.

    Returns:
        Embeddings, (B, T, F) or (T, B, F).
    """
    settings = config.regularisation
    if not training or settings.is_off:
        return dropout(module(tokens), config.dropout, training)
    embedded: Tensor = module(tokens)
    if settings.embedding_row_dropout:  # of the rows that are looked up: the whole matrix is large
        embedded = embedded * draw_mask(module.weight[:, :1], settings.embedding_row_dropout)[tokens]
    if settings.variational and config.dropout:
        embedded = embedded * draw_mask(embedded.narrow(time_dim, 0, 1), config.dropout)
    else:
        embedded = dropout(embedded, config.dropout)
    if settings.word_dropout:
        embedded = embedded * draw_mask(embedded[..., :1], settings.word_dropout)
    return embedded
