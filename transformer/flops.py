"""Closed formulas for the multiply-adds of a forward pass; needs no torch.

Matrix products are counted, on real tokens, and causal or otherwise masked attention as the full square. For
queries and keys of width A (``attention_size``) and values of width C (``values_size``), a self-attention
costs 2 D A + 2 D C per token and A + C per pair of query and key (linear attention: the cheaper one of two
orders of its products); relative positions cost (A + C)(2 k + 1)
more per token. The caller adds the output layer.
"""

from .config import DecoderOnlyConfig, LayerConfig, TransformerConfig

CHUNK = 64
"""Positions per chunk of causal linear attention; sentences of at most so many have one chunk."""


def multiply_adds(config: TransformerConfig | DecoderOnlyConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded.

    Args:
        config: the model; for a language model, a ``DecoderOnlyConfig`` with ``src_len`` 0.
        src_len: number of source tokens, possibly a mean.
        tgt_len: number of target tokens, possibly a mean.
    """
    if isinstance(config, DecoderOnlyConfig):
        length = src_len + tgt_len
        mask = "prefix" if src_len else config.decoder_mask
        layers = config.num_layers * _layer_multiply_adds(config, length, causal=True, mask=mask)
        return layers + _position_multiply_adds(config, length)
    return encoder_multiply_adds(config, src_len) + decoder_multiply_adds(config, src_len, tgt_len)


def encoder_multiply_adds(config: TransformerConfig, src_len: float) -> float:
    """Count the multiply-adds of an ``Encoder`` per sentence of ``src_len`` tokens."""
    layers = config.encoder_layers * _layer_multiply_adds(config, src_len, mask=config.encoder_mask)
    return layers + _position_multiply_adds(config, src_len)


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
    cross_attention = cross_attention_multiply_adds(config, src_len, tgt_len, memory_size)
    layer = _layer_multiply_adds(config, tgt_len, causal=True, mask=config.decoder_mask) + cross_attention
    return config.decoder_layers * layer + _position_multiply_adds(config, tgt_len)


def cross_attention_multiply_adds(
    config: LayerConfig, src_len: float, tgt_len: float, memory_size: int | None = None
) -> float:
    """Count those of one attention to the source; arguments as for ``decoder_multiply_adds``."""
    pair = config.attention_size + config.values_size
    query_and_output = tgt_len * config.d_model * pair
    keys_and_values = src_len * (memory_size or config.d_model) * pair
    return query_and_output + keys_and_values + _attend(config, tgt_len, src_len, mask=config.cross_mask)


def self_attention_multiply_adds(
    config: LayerConfig, length: float, *, causal: bool = False, mask: str = "full"
) -> float:
    """Count those of one self-attention over ``length`` tokens, of the encoder unless ``causal``."""
    pair = config.attention_size + config.values_size
    relative = 0 if config.distance_limit is None else pair * (2 * config.distance_limit + 1)
    products = _attend(config, length, length, causal=causal, mask=mask)
    return length * (2 * config.d_model * pair + relative) + products


def feed_forward_multiply_adds(config: LayerConfig, length: float) -> float:
    """Count those of one feed-forward sublayer over ``length`` tokens."""
    matrices = 3 if config.activation == "swiglu" else 2
    return length * matrices * config.d_model * config.ffn_size


def is_factored(queries: float, keys: float, size: int, value_size: int, *, causal: bool) -> bool:
    """Return whether linear attention computes Q (K^T V), not (Q K^T) V, for one head.

    Args:
        queries: number of queries, possibly a mean.
        keys: number of keys, possibly a mean.
        size: width of queries and keys.
        value_size: width of the values; the denominator is one more.
        causal: whether query i is forbidden all keys after i. Then each chunk by itself is (Q K^T) V.
    """
    if causal:
        return queries > CHUNK
    return (queries + keys) * size * (value_size + 1) < queries * keys * (size + value_size)


def _attend(
    config: LayerConfig, queries: float, keys: float, *, causal: bool = False, mask: str = "full"
) -> float:
    """Count the products of queries with keys and of weights with values, of all heads."""
    size, value_size = config.query_size, config.values_size // config.num_heads
    factored = config.attention_kind == "linear" and mask == "full"
    if not factored or not is_factored(queries, keys, size, value_size, causal=causal):
        return queries * keys * (config.attention_size + config.values_size)
    if not causal:
        return config.num_heads * (queries + keys) * size * (value_size + 1)
    positions = -(-queries // CHUNK) * CHUNK
    return config.num_heads * positions * (CHUNK * (size + value_size + 1) + 2 * size * (value_size + 1))


def _layer_multiply_adds(
    config: LayerConfig, length: float, *, causal: bool = False, mask: str = "full"
) -> float:
    """Count those of self-attention and feed-forward sublayer over ``length`` tokens."""
    attention = self_attention_multiply_adds(config, length, causal=causal, mask=mask)
    return attention + feed_forward_multiply_adds(config, length)


def _position_multiply_adds(config: LayerConfig, length: float) -> float:
    """Count those of the network of positions, which a batch shares, as if each sentence computed it."""
    return 2 * length * config.d_model**2 if config.positions == "network" else 0
