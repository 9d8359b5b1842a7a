"""Closed formulas for the multiply-adds of a forward pass; needs no torch.

Matrix products are counted, on real tokens, and causal attention as the full square. An attention of width A
(``attention_size``) costs D A per token for each of its 4 projections and 2 A per pair of query and key. The
caller adds the output layer.
"""

from .config import DecoderOnlyConfig, LayerConfig, TransformerConfig


def multiply_adds(config: TransformerConfig | DecoderOnlyConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded.

    Args:
        config: the model; for a language model, a ``DecoderOnlyConfig`` with ``src_len`` 0.
        src_len: number of source tokens, possibly a mean.
        tgt_len: number of target tokens, possibly a mean.
    """
    if isinstance(config, DecoderOnlyConfig):
        return config.num_layers * _layer_multiply_adds(config, src_len + tgt_len)
    return encoder_multiply_adds(config, src_len) + decoder_multiply_adds(config, src_len, tgt_len)


def encoder_multiply_adds(config: TransformerConfig, src_len: float) -> float:
    """Count the multiply-adds of an ``Encoder`` per sentence of ``src_len`` tokens."""
    return config.encoder_layers * _layer_multiply_adds(config, src_len)


def decoder_multiply_adds(
    config: TransformerConfig, src_len: float, tgt_len: float, memory_size: int | None = None
) -> float:
    """Count the multiply-adds of a ``Decoder`` per sentence pair, output layer excluded.

    Args:
        config: the model.
        src_len: number of source tokens, possibly a mean.
        tgt_len: number of target tokens, possibly a mean.
        memory_size: width of the encoder's states; None means ``d_model``.
    """
    query_and_output = tgt_len * 2 * config.d_model * config.attention_size
    keys_and_values = src_len * 2 * (memory_size or config.d_model) * config.attention_size
    cross_attention = query_and_output + keys_and_values + tgt_len * src_len * 2 * config.attention_size
    return config.decoder_layers * (_layer_multiply_adds(config, tgt_len) + cross_attention)


def _layer_multiply_adds(config: LayerConfig, length: float) -> float:
    """Count those of self-attention and feed-forward sublayer over ``length`` tokens."""
    weights = 4 * config.d_model * config.attention_size + 2 * config.d_model * config.ffn_size
    return length * weights + length * length * 2 * config.attention_size
