"""Multiply-adds of a forward pass, by closed formulas.

Counted are matrix products, those of attention included, on real tokens. The output layer is counted by the
caller, who knows the vocabulary.
"""

from .attention import attention_work
from .config import Seq2SeqConfig
from .scores import SCORES


def multiply_adds(config: Seq2SeqConfig, src_len: float, tgt_len: float) -> float:
    """Count a sentence pair's multiply-adds up to the states that the output layer reads.

    Args:
        config: the model.
        src_len: source tokens read; a mean will do.
        tgt_len: target tokens read.
    """
    summary_size = config.num_layers * config.states_size * _states_per_layer(config)
    encoder = encoder_multiply_adds(config, src_len)
    return encoder + decoder_multiply_adds(config, src_len, tgt_len, config.states_size, summary_size)


def encoder_multiply_adds(config: Seq2SeqConfig, src_len: float) -> float:
    """Count those of an ``Encoder`` alone."""
    size, directions = config.states_size, 2 if config.direction == "both" else 1
    count = src_len * _layers(config, config.embedding_size, size, directions)
    if config.self_attention in ("encoder", "both"):
        count += directions * _self_attention(size // directions, src_len)
    return count


def decoder_multiply_adds(
    config: Seq2SeqConfig, src_len: float, tgt_len: float, value_size: int, summary_size: int
) -> float:
    """Count those of a ``Decoder`` alone: bridge, cells, attention and readout.

    Args:
        config: the model whose decoder it is.
        src_len: source states attended to.
        tgt_len: target tokens read.
        value_size: width of a source state.
        summary_size: width of the source summary that the first decoder state is computed from.
    """
    h, attention, input_size = config.hidden_size, config.attention, config.embedding_size
    context = fed = bridge = 0
    count = 0.0
    if attention is None:
        input_size += h if config.feed_summary else 0
    else:
        context = SCORES[attention.score].context_width(h, value_size, attention)
        fed = context if attention.placement == "before" else config.output_size * attention.input_feeding
        bridge = summary_size * config.num_layers * h * _states_per_layer(config)
        count = attention_work(attention, h, value_size).total(src_len, tgt_len)
    if config.self_attention in ("decoder", "both"):
        count += _self_attention(h, tgt_len)
    after = attention is not None and attention.placement == "after"
    readout = (
        (h + context + (0 if after else input_size))
        * config.output_size
        * (2 if config.readout == "maxout" else 1)
    )
    return count + bridge + tgt_len * (_layers(config, input_size + fed, h) + readout)


def _states_per_layer(config: Seq2SeqConfig) -> int:
    """An LSTM hands on a hidden and a cell state, a GRU a hidden state."""
    return 2 if config.cell == "lstm" else 1


def _layers(config: Seq2SeqConfig, input_size: int, size: int, directions: int = 1) -> int:
    """Multiply-adds of one token through all layers, whose directions are ``size`` wide together."""
    gates = 4 if config.cell == "lstm" else 3
    inputs = input_size + size * (config.num_layers - 1)
    return gates * size * (inputs + config.num_layers * (size // directions))


def _self_attention(size: int, length: float) -> float:
    """Self-attention of an RNN: scores and sums over the whole square, and the join of state and context."""
    return length * length * 2 * size + length * 2 * size * size
