"""Floating-point operations of the models, by closed formulas.

Counted: 2 for each multiply-add of every matrix product, those of attention and of the output layer included,
on real tokens (no padding), causal attention as the whole square. Not counted: embedding look-ups, biases,
norms, softmax, gates and all else that works element by element.
"""

from compare.hybrid_config import HybridConfig
from compare.presets import Architecture
from seq2seq.attention import attention_work
from seq2seq.config import Seq2SeqConfig
from seq2seq.scores import SCORES
from transformer.config import DecoderOnlyConfig, TransformerConfig
from transformer.flops import decoder_multiply_adds, encoder_multiply_adds, multiply_adds


def train_flops_per_token(
    config: Architecture, *, src_len: float, tgt_len: float, tgt_vocabulary: int
) -> float:
    """Count an update's operations for each token, as throughput counts them: source without EOS and target.

    For each product of the forward pass the backward pass has two, for the gradients of its two factors:
    three times ``forward_flops`` in all. Arguments as there.
    """
    forward = forward_flops(config, src_len=src_len, tgt_len=tgt_len, tgt_vocabulary=tgt_vocabulary)
    return 3 * forward / (src_len - 1 + tgt_len)


def forward_flops(config: Architecture, *, src_len: float, tgt_len: float, tgt_vocabulary: int) -> float:
    """Count the operations that give the logits of one sentence pair, all of the target being known.

    Args:
        config: the model.
        src_len: source tokens the encoder reads, EOS included; a mean will do.
        tgt_len: target tokens predicted, EOS included.
        tgt_vocabulary: entries of the target vocabulary.
    """
    match config:
        case TransformerConfig() | DecoderOnlyConfig():
            found, width = multiply_adds(config, src_len, tgt_len), config.d_model
        case Seq2SeqConfig():
            summary = config.num_layers * config.states_size * _kept(config)
            found = _read(config, src_len) + _write(config, src_len, tgt_len, config.states_size, summary)
            width = config.output_size
        case HybridConfig(encoder=TransformerConfig() as reads, decoder=Seq2SeqConfig() as writes):
            found = encoder_multiply_adds(reads, src_len)
            found += _write(writes, src_len, tgt_len, reads.d_model, reads.d_model)
            width = writes.output_size
        case HybridConfig(encoder=Seq2SeqConfig() as reads, decoder=TransformerConfig() as writes):
            found = _read(reads, src_len) + decoder_multiply_adds(writes, src_len, tgt_len, reads.states_size)
            width = writes.d_model
    return 2 * (found + tgt_len * width * tgt_vocabulary)


def _read(config: Seq2SeqConfig, s: float) -> float:
    """Multiply-adds of the recurrent encoder."""
    size, directions = config.states_size, 2 if config.direction == "both" else 1
    found = s * _rnn(config, config.embedding_size, size, directions)
    if config.self_attention in ("encoder", "both"):
        found += directions * _look_back(size // directions, s)
    return found


def _write(config: Seq2SeqConfig, s: float, t: float, value_size: int, summary_size: int) -> float:
    """Multiply-adds of the recurrent decoder: bridge, cells, attention and readout."""
    h, attention, known = config.hidden_size, config.attention, config.embedding_size
    context = fed = bridge = 0
    found = 0.0
    if attention is None:
        known += h if config.feed_summary else 0
    else:
        context = SCORES[attention.score].context_width(h, value_size, attention)
        fed = context if attention.placement == "before" else config.output_size * attention.input_feeding
        bridge = summary_size * config.num_layers * h * _kept(config)
        found = attention_work(attention, h, value_size).total(s, t)
    if config.self_attention in ("decoder", "both"):
        found += _look_back(h, t)
    after = attention is not None and attention.placement == "after"
    read = (
        (h + context + (0 if after else known))
        * config.output_size
        * (2 if config.readout == "maxout" else 1)
    )
    return found + bridge + t * (_rnn(config, known + fed, h) + read)


def _kept(config: Seq2SeqConfig) -> int:
    """States that a layer hands on: an LSTM has a cell state beside the h."""
    return 2 if config.cell == "lstm" else 1


def _rnn(config: Seq2SeqConfig, input_size: int, size: int, directions: int = 1) -> int:
    """Multiply-adds of a token through all layers, whose directions are ``size`` wide together."""
    gates = 4 if config.cell == "lstm" else 3
    read = input_size + size * (config.num_layers - 1)
    return gates * size * (read + config.num_layers * (size // directions))


def _look_back(size: int, length: float) -> float:
    """Self-attention of an RNN: scores and sums over the whole square, and the join of state and context."""
    return length * length * 2 * size + length * 2 * size * size
