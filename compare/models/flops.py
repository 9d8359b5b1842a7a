"""Closed formulas for the floating-point operations (FLOPs) of the models.

Each multiply-add of a matrix product counts as 2, including those of attention and of the output layer. Only
real tokens count, no padding; causal attention counts as the full square. Embedding look-ups, biases, norms,
softmax, gates and other elementwise work are not counted.
"""

from compare.models.registry import Architecture, family_of


def train_flops_per_token(
    config: Architecture, *, src_len: float, tgt_len: float, tgt_vocabulary: int, passes: int = 1
) -> float:
    """Count the FLOPs of a training update per token.

    The backward pass has two products for each one of the forward pass, for the gradients of its two factors:
    three times ``forward_flops`` in total. Tokens are those that throughput counts: the source without the
    end of sentence, and the target with it.

    Args:
        config: the model.
        src_len: as for ``forward_flops``.
        tgt_len: as for ``forward_flops``.
        tgt_vocabulary: as for ``forward_flops``.
        passes: times that each token goes through the model forward and backward: 2 with consistency
            regularisation, whose tokens count once.
    """
    forward = forward_flops(config, src_len=src_len, tgt_len=tgt_len, tgt_vocabulary=tgt_vocabulary)
    return passes * 3 * forward / (src_len - 1 + tgt_len)


def forward_flops(config: Architecture, *, src_len: float, tgt_len: float, tgt_vocabulary: int) -> float:
    """Count the FLOPs of the logits of one sentence pair with given target.

    Args:
        config: the model.
        src_len: number of source tokens, end of sentence included; possibly a mean.
        tgt_len: number of target tokens predicted, end of sentence included; possibly a mean.
        tgt_vocabulary: size of the target vocabulary.
    """
    operations = family_of(config).operations(config, src_len, tgt_len)
    return 2 * (operations.multiply_adds + tgt_len * operations.output_size * tgt_vocabulary)
