"""Number of multiply-adds of a forward pass, counted from the matrices of a model without memory.

Only matrix products are counted, including those of attention, and only for real tokens: each matrix is
multiplied once per token that its module reads. The output layer is left to the caller, who knows the
vocabulary.
"""

from typing import cast

import torch
from torch import nn

from .config import RecurrentLanguageModelConfig, Seq2SeqConfig
from .decoder import Decoder, SelfAttention
from .model import Encoder
from .scores import matrix_size


def multiply_adds(config: Seq2SeqConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of a ``Seq2Seq`` for one sentence pair, without the output layer.

    Args:
        config: the model.
        src_len: number of source tokens, or their mean.
        tgt_len: number of target tokens, or their mean.
    """
    decoder = decoder_multiply_adds(config, src_len, tgt_len, config.states_size, config.summary_size)
    return encoder_multiply_adds(config, src_len) + decoder


def encoder_multiply_adds(config: Seq2SeqConfig, src_len: float) -> float:
    """Count the multiply-adds of an ``Encoder`` for one sentence of ``src_len`` tokens."""
    with torch.device("meta"):
        encoder = Encoder(config, vocabulary=1)
    count = src_len * matrix_size(encoder.rnn)
    if encoder.own is not None:
        for part in encoder.own.parts:
            count += _self_attention(cast("SelfAttention", part), src_len)
    return count


def decoder_multiply_adds(
    config: Seq2SeqConfig, src_len: float, tgt_len: float, value_size: int, summary_size: int
) -> float:
    """Count the multiply-adds of a ``Decoder`` for one sentence: bridge, cells, attention and readout.

    Args:
        config: the model that the decoder belongs to.
        src_len: number of encoder states.
        tgt_len: number of target tokens.
        value_size: size of an encoder state.
        summary_size: size of the encoder's summary, from which the initial state is computed.
    """
    with torch.device("meta"):
        decoder = Decoder(config, 1, value_size, summary_size)
    count = tgt_len * matrix_size(decoder.rnn, *_present(decoder.readout)) + matrix_size(
        *_present(decoder.bridge)
    )
    if decoder.own is not None:
        count += _self_attention(decoder.own, tgt_len)
    if decoder.attention is not None:
        count += decoder.attention.multiply_adds().total(src_len, tgt_len)
    return count


def language_model_multiply_adds(config: RecurrentLanguageModelConfig, length: float) -> float:
    """Count the multiply-adds of a ``RecurrentLanguageModel`` for ``length`` tokens, possibly a mean."""
    return decoder_multiply_adds(
        config.decoder, 0, length, value_size=0, summary_size=config.decoder.start_size
    )


def _present(module: nn.Module | None) -> list[nn.Module]:
    return [] if module is None else [module]


def _self_attention(module: SelfAttention, length: float) -> float:
    """Count the scores and weighted sums of all pairs of positions, and the matrix W of each position."""
    return length * length * 2 * module.join.out_features + length * matrix_size(module)
