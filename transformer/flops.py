"""Multiply-adds of a forward pass, by closed formulas; needs no torch.

Counted are matrix products, on real tokens, causal attention as the whole square: in an attention of width A
(``attention_size``) D A a token for each of 4 projections, and 2 A for each pair of a query and a key.
The output layer is left to who knows the vocabulary.
"""

from .config import DecoderOnlyConfig, LayerConfig, TransformerConfig


def multiply_adds(config: TransformerConfig | DecoderOnlyConfig, src_len: float, tgt_len: float) -> float:
    """Count a sentence pair's multiply-adds up to the states that the output layer reads.

    Args:
        config: the model; a language model is a ``DecoderOnlyConfig`` with ``src_len`` 0.
        src_len: source tokens read; a mean will do.
        tgt_len: target tokens read.
    """
    if isinstance(config, DecoderOnlyConfig):
        return config.num_layers * _layer(config, src_len + tgt_len)
    return encoder_multiply_adds(config, src_len) + decoder_multiply_adds(config, src_len, tgt_len)


def encoder_multiply_adds(config: TransformerConfig, src_len: float) -> float:
    """Count those of an ``Encoder`` alone."""
    return config.encoder_layers * _layer(config, src_len)


def decoder_multiply_adds(
    config: TransformerConfig, src_len: float, tgt_len: float, memory_size: int | None = None
) -> float:
    """Count those of a ``Decoder`` alone, whose memory is ``memory_size`` wide (``d_model`` if left out)."""
    query_and_out = tgt_len * 2 * config.d_model * config.attention_size
    keys_and_values = src_len * 2 * (memory_size or config.d_model) * config.attention_size
    cross = query_and_out + keys_and_values + tgt_len * src_len * 2 * config.attention_size
    return config.decoder_layers * (_layer(config, tgt_len) + cross)


def _layer(config: LayerConfig, length: float) -> float:
    """Self-attention of ``length`` tokens and the feed-forward sublayer."""
    weights = 4 * config.d_model * config.attention_size + 2 * config.d_model * config.ffn_size
    return length * weights + length * length * 2 * config.attention_size
