"""Floating-point operations of the models, by closed formulas.

Counted: 2 for each multiply-add of every matrix product, those of attention and of the output layer included,
on real tokens (no padding), causal attention as the whole square. Not counted: embedding look-ups, biases,
norms, softmax, gates and all else that works element by element.
"""

from compare.models.registry import Architecture, family_of


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
    operations = family_of(config).operations(config, src_len, tgt_len)
    return 2 * (operations.multiply_adds + tgt_len * operations.output_size * tgt_vocabulary)
