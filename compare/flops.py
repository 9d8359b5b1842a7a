"""Floating-point operations of the models, by closed formulas.

Counted: 2 for each multiply-add of every matrix product, those of attention and of the output layer included,
on real tokens (no padding), causal attention as the whole square. Not counted: embedding look-ups, biases,
norms, softmax, gates and all else that works element by element.
"""

from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig


def train_flops_per_token(
    config: Seq2SeqConfig | TransformerConfig, *, src_len: float, tgt_len: float, tgt_vocabulary: int
) -> float:
    """Count an update's operations for each token, as throughput counts them: source without EOS and target.

    For each product of the forward pass the backward pass has two, for the gradients of its two factors:
    three times ``forward_flops`` in all. Arguments as there.
    """
    forward = forward_flops(config, src_len=src_len, tgt_len=tgt_len, tgt_vocabulary=tgt_vocabulary)
    return 3 * forward / (src_len - 1 + tgt_len)


def forward_flops(
    config: Seq2SeqConfig | TransformerConfig, *, src_len: float, tgt_len: float, tgt_vocabulary: int
) -> float:
    """Count the operations that give the logits of one sentence pair, all of the target being known.

    Args:
        config: the model.
        src_len: source tokens the encoder reads, EOS included; a mean will do.
        tgt_len: target tokens predicted, EOS included.
        tgt_vocabulary: entries of the target vocabulary.
    """
    match config:
        case Seq2SeqConfig():
            multiply_adds = _encode(config, src_len) + _decode(config, src_len, tgt_len)
            width = config.output_size
        case TransformerConfig():
            multiply_adds = _transform(config, src_len, tgt_len)
            width = config.d_model
    return 2 * (multiply_adds + tgt_len * width * tgt_vocabulary)


def _encode(config: Seq2SeqConfig, s: float) -> float:
    """Multiply-adds of the recurrent encoder, of the keys and of the bridge to the decoder's first state."""
    h = config.hidden_size
    kept = h * (2 if config.cell == "lstm" else 1)  # an LSTM has a cell state beside the h
    rnn = _rnn(config, config.embedding_size, directions=2 if config.bidirectional else 1)
    key = {"none": 0, "dot": 0, "general": h}.get(config.attention, _attention_size(config)) * h
    bridge = 0 if config.attention == "none" else (kept * config.num_layers) ** 2
    return s * (rnn + key) + bridge


def _decode(config: Seq2SeqConfig, s: float, t: float) -> float:
    """Multiply-adds of the recurrent decoder, its attention and its readout."""
    h, attends = config.hidden_size, config.attention != "none"
    before = attends and config.placement == "before"
    fed = h if before else config.output_size if config.input_feeding else 0
    rnn = _rnn(config, config.embedding_size + fed)
    query, score = 0, h
    if config.attention in ("additive", "concat"):
        query, score = h * _attention_size(config), _attention_size(config)
    attention = query + s * (score + h) if attends else 0
    found = h + (h if attends else 0) + (0 if config.placement == "after" else config.embedding_size)
    return t * (rnn + attention + found * config.output_size)


def _rnn(config: Seq2SeqConfig, input_size: int, directions: int = 1) -> int:
    """Multiply-adds of a token through all layers, whose directions are hidden_size wide together."""
    h, gates = config.hidden_size, 4 if config.cell == "lstm" else 3
    read = input_size + h * (config.num_layers - 1)
    return gates * h * (read + config.num_layers * (h // directions))


def _attention_size(config: Seq2SeqConfig) -> int:
    """Width of the hidden layer of an additive score."""
    return config.attention_size or config.hidden_size


def _transform(config: TransformerConfig, s: float, t: float) -> float:
    """Multiply-adds of the Transformer: an attention has 4 projections, and 2 D for each query and key."""
    d = config.d_model
    feed_forward = 2 * d * config.ffn_size
    encoder = s * (4 * d * d + feed_forward) + 2 * s * s * d
    own = t * (4 * d * d + feed_forward) + 2 * t * t * d
    cross = (t + s) * 2 * d * d + 2 * t * s * d
    return config.encoder_layers * encoder + config.decoder_layers * (own + cross)
