"""Number of multiply-adds of a forward pass, counted from a model, which may be on the meta device.

Only matrix products are counted, and only for real tokens: each matrix is multiplied once per token that its
module reads; attention multiplies all pairs of queries and keys, causal or otherwise masked attention as the
full square. The output layer is left to the caller, who knows the vocabulary.
"""

from typing import Any

import torch
from torch import nn

from seq2seq.attention import Attention
from seq2seq.decoder import Decoder
from seq2seq.model import Encoder, RecurrentLanguageModel, Seq2Seq
from seq2seq.scores import Queries
from transformer.attention import CHUNK, is_factored
from transformer.decoder_only import DecoderOnly, LanguageModel
from transformer.gated_linear import GatedLinearAttention, chunks
from transformer.model import LayerStack, Transformer
from transformer.multihead import CrossAttention, SelfAttention

Model = Seq2Seq | Transformer | DecoderOnly | RecurrentLanguageModel | LanguageModel


def count_multiply_adds(model: Model, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded; lengths may be means.

    For a language model the source counts for nothing. Encoder and decoder may be of different families.
    """
    if isinstance(model, DecoderOnly | LanguageModel):
        return stack_multiply_adds(model, tgt_len + (src_len if isinstance(model, DecoderOnly) else 0))
    if isinstance(model, RecurrentLanguageModel):
        return decoder_multiply_adds(model.decoder, 0, tgt_len)
    encoder: Any = model.encoder
    is_recurrent = isinstance(encoder, Encoder)
    reading = (encoder_multiply_adds if is_recurrent else stack_multiply_adds)(encoder, src_len)
    if isinstance(model, Transformer):
        return reading + stack_multiply_adds(model.decoder, tgt_len, src_len)
    return reading + decoder_multiply_adds(model.decoder, src_len, tgt_len)


# Recurrent encoders and decoders.


def encoder_multiply_adds(encoder: Encoder, src_len: float) -> float:
    """Count the multiply-adds for one sentence of ``src_len`` tokens."""
    count = src_len * matrix_size(encoder.rnn, encoder.self_attention)
    if encoder.self_attention is not None:  # scores and weighted sums of all pairs of positions
        count += src_len * src_len * 2 * encoder.config.states_size
    return count


def decoder_multiply_adds(decoder: Decoder, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of bridge, cells, attention to ``src_len`` encoder states, and readout."""
    of_steps = matrix_size(decoder.rnn, decoder.readout, decoder.self_attention)
    count = tgt_len * of_steps + matrix_size(decoder.bridge)
    if decoder.self_attention is not None:
        count += tgt_len * tgt_len * 2 * decoder.config.hidden_size
    if decoder.attention is not None:
        count += attention_multiply_adds(decoder.attention, src_len, tgt_len)
    return count


def attention_multiply_adds(attention: Attention, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of ``tgt_len`` queries to ``src_len`` encoder states, on "meta".

    Each product is computed per state, per query, or per pair of both, so that three counts tell how often.
    """
    from torch.utils.flop_counter import FlopCounterMode  # takes seconds, as it brings torch's compiler

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
    """Count the multiply-adds of one vector by each matrix of some modules; these are all called "weight"."""
    named = (pair for module in modules if module is not None for pair in module.named_parameters())
    return sum(matrix.numel() for name, matrix in named if "weight" in name and matrix.dim() > 1)


# Stacks of Transformer layers.


def stack_multiply_adds(stack: LayerStack, length: float, src_len: float = 0) -> float:
    """Count the multiply-adds of a stack over ``length`` tokens, which attend to ``src_len`` others.

    The network of positions, which a batch shares, counts as if each sentence computed it.
    """
    count, output = 0.0, getattr(stack, "output", None)
    is_full = stack.mask_pattern is None and not isinstance(stack, DecoderOnly)
    for name, module in stack.named_modules():
        if isinstance(module, SelfAttention):
            count += _attend(module, length, length, causal=module.causal, is_full=is_full)
            if module.relative is not None:
                vectors = sum(weight.numel() for weight in module.relative.parameters())
                count += length * module.num_heads * vectors
        elif isinstance(module, CrossAttention):
            is_open = getattr(stack, "cross_pattern", None) is None
            count += _attend(module, length, src_len, causal=False, is_full=is_open)
        elif isinstance(module, GatedLinearAttention):
            count += _recur(module, length)
        elif isinstance(module, nn.Linear | nn.RNNBase) and module is not output:
            tokens = src_len if name.endswith("project_memory") else length
            count += tokens * sum(weight.numel() for weight in module.parameters() if weight.dim() == 2)
    return count


def _attend(
    module: SelfAttention | CrossAttention, queries: float, keys: float, *, causal: bool, is_full: bool
) -> float:
    """Count the products of queries with keys and of weights with values, of all heads."""
    size, value_size = (wide // module.kv_heads for wide in module.sizes[-2:])
    factored = module.is_linear and is_full and is_factored(queries, keys, size, value_size, causal=causal)
    if not factored:
        return module.num_heads * queries * keys * (size + value_size)
    if not causal:
        return module.num_heads * (queries + keys) * size * (value_size + 1)
    positions = -(-queries // CHUNK) * CHUNK
    return module.num_heads * positions * (CHUNK * (size + value_size + 1) + 2 * size * (value_size + 1))


def _recur(module: GatedLinearAttention, length: float) -> float:
    """Count the products of all pairs inside each chunk, and with the states of more than one."""
    count, size = chunks(length)
    keys, values = module.sizes[0], module.sizes[2]
    of_states = 2 * keys * values / module.num_heads if count > 1 else 0
    return count * size * (size * (keys + values) + of_states)
