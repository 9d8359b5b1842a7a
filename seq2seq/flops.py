"""Number of multiply-adds of a forward pass, counted of a model, which may be without memory ("meta").

Only matrix products are counted, including those of attention, and only for real tokens: each matrix is
multiplied once per token that its module reads; those of attention are counted by torch. The output layer is
left to the caller, who knows the vocabulary.
"""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .attention import Attention
from .decoder import Decoder
from .model import Encoder, RecurrentLanguageModel, Seq2Seq
from .scores import Queries


def multiply_adds(model: Seq2Seq | RecurrentLanguageModel, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds for one sentence pair, without the output layer; lengths may be means."""
    reading = encoder_multiply_adds(model.encoder, src_len) if isinstance(model, Seq2Seq) else 0.0
    return reading + decoder_multiply_adds(model.decoder, src_len, tgt_len)


def encoder_multiply_adds(encoder: Encoder, src_len: float) -> float:
    """Count the multiply-adds for one sentence of ``src_len`` tokens."""
    count = src_len * matrix_size(encoder.rnn)
    if encoder.own is not None:  # scores and weighted sums of all pairs of positions, and the matrices W
        count += src_len * src_len * 2 * encoder.config.states_size + src_len * matrix_size(encoder.own)
    return count


def decoder_multiply_adds(decoder: Decoder, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of bridge, cells, attention to ``src_len`` encoder states, and readout."""
    count = tgt_len * matrix_size(decoder.rnn, decoder.readout) + matrix_size(decoder.bridge)
    if decoder.own is not None:
        count += tgt_len * tgt_len * 2 * decoder.config.hidden_size + tgt_len * matrix_size(decoder.own)
    if decoder.attention is not None:
        count += attention_multiply_adds(decoder.attention, src_len, tgt_len)
    return count


def attention_multiply_adds(attention: Attention, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of ``tgt_len`` queries to ``src_len`` encoder states, on "meta".

    Each product is computed per state, per query, or per pair of both, so that three counts tell how often.
    """
    with torch.device("meta"):

        def count(words: int, queries: int) -> int:
            states, mask = torch.empty(1, words, attention.value_size), torch.ones(1, words, dtype=torch.bool)
            position = torch.zeros(1, queries, dtype=torch.long)
            asked = Queries(torch.empty(1, queries, attention.query_size), position)
            with FlopCounterMode(display=False) as counter:
                attention(asked, attention.remember(states, mask))
            return int(counter.get_total_flops()) // 2

        one, per_word, per_query = count(1, 1), count(2, 1), count(1, 2)
    pair = per_word + per_query - 3 * one
    source, target = per_word - one - pair, per_query - one - pair
    return src_len * source + tgt_len * target + src_len * tgt_len * pair


def matrix_size(*modules: nn.Module | None) -> int:
    """Count the entries of all matrices of some modules: the multiply-adds of one vector by each.

    All matrices are called "weight"; gains of norms are not, even where several stand in one parameter.
    """
    named = (pair for module in modules if module is not None for pair in module.named_parameters())
    return sum(matrix.numel() for name, matrix in named if "weight" in name and matrix.dim() > 1)
