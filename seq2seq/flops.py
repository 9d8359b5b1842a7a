"""Number of multiply-adds of a forward pass, in closed form.

Only matrix products are counted, including those of attention, and only for real tokens. The output layer is
left to the caller, who knows the vocabulary.
"""

from .attention import attention_multiply_adds
from .cells import MIN_CELLS
from .config import RecurrentLanguageModelConfig, Seq2SeqConfig
from .scores import SCORES

READOUT_COPIES = {"tanh": 1, "maxout": 2, "none": 0}
"""By ``Seq2SeqConfig.readout``: the number of matrices of the readout."""


def multiply_adds(config: Seq2SeqConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of a ``Seq2Seq`` for one sentence pair, without the output layer.

    Args:
        config: the model.
        src_len: number of source tokens, or their mean.
        tgt_len: number of target tokens, or their mean.
    """
    summary_size = config.encoder_depth * config.states_size * _states_per_layer(config)
    encoder = encoder_multiply_adds(config, src_len)
    return encoder + decoder_multiply_adds(config, src_len, tgt_len, config.states_size, summary_size)


def encoder_multiply_adds(config: Seq2SeqConfig, src_len: float) -> float:
    """Count the multiply-adds of an ``Encoder`` for one sentence of ``src_len`` tokens."""
    size, depth, directions = config.states_size, config.encoder_depth, 2 if config.direction == "both" else 1
    if config.direction == "both-bottom":
        bottom = 2 * _layers(config, 1, config.embedding_size, size)
        count = src_len * (bottom + _layers(config, depth - 1, 2 * size, size))
    else:
        count = src_len * _layers(config, depth, config.embedding_size, size, directions)
    if config.self_attention in ("encoder", "both"):
        count += directions * _self_attention(size // directions, src_len)
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
    h, attention, input_size = config.hidden_size, config.attention, config.embedding_size
    context = feedback = to_upper = 0
    count = 0.0
    if attention is None:
        input_size += h if config.feed_summary else 0
    else:
        context = SCORES[attention.score].context_width(h, value_size, attention)
        attends_before = attention.placement == "before"
        feedback = context if attends_before else config.output_size * attention.input_feeding
        to_upper = context * (config.num_layers - 1) if attention.context_to == "all" else 0
        count = attention_multiply_adds(attention, h, value_size).total(src_len, tgt_len)
    if config.start == "bridge":
        count += summary_size * config.start_size
    if config.self_attention in ("decoder", "both"):
        count += _self_attention(h, tgt_len)
    attends_after = attention is not None and attention.placement == "after"
    readout_input = h + (0 if attends_after else input_size)
    if attention is not None and attention.context_to_readout:
        readout_input += context
    readout = readout_input * config.output_size * READOUT_COPIES[config.readout]
    cells = _layers(config, config.num_layers, input_size + feedback + to_upper, h)
    return count + tgt_len * (cells + readout)


def language_model_multiply_adds(config: RecurrentLanguageModelConfig, length: float) -> float:
    """Count the multiply-adds of a ``RecurrentLanguageModel`` for one text, without the output layer.

    Args:
        config: the model.
        length: number of tokens predicted, or their mean.
    """
    return decoder_multiply_adds(config.decoder, 0, length, value_size=0, summary_size=0)


def _states_per_layer(config: Seq2SeqConfig) -> int:
    """Return 2 for the h and c of an LSTM, 1 for the h of other cells."""
    return 2 if config.has_cell_state else 1


def _layers(config: Seq2SeqConfig, depth: int, input_size: int, size: int, directions: int = 1) -> int:
    """Count ``depth`` layers for one token; ``size`` is the width of their directions together."""
    inputs = input_size + size * (depth - 1)
    if config.cell in MIN_CELLS:  # the state enters no product
        return MIN_CELLS[config.cell] * size * inputs
    gates = 4 if config.has_cell_state else 3
    return gates * size * (inputs + depth * (size // directions))


def _self_attention(size: int, length: float) -> float:
    """Count the scores and weighted sums of all pairs of positions, and the matrix W of each position."""
    return length * length * 2 * size + length * 2 * size * size
