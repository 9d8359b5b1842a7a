"""Number of multiply-adds of a forward pass, counted from the matrices of a model, which may lie on "meta".

Each matrix is multiplied once per token that its module reads, and attention multiplies all pairs of queries
and keys: real tokens alone are counted, and causal or otherwise masked attention as the full square. The
caller adds the output layer.
"""

from torch import nn

from . import fast
from .attention import is_factored
from .decoder_only import DecoderOnly, LanguageModel
from .model import LayerStack, Transformer
from .multihead import CrossAttention, SelfAttention


def multiply_adds(model: Transformer | DecoderOnly | LanguageModel, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded.

    Args:
        model: for a language model, the source counts for nothing.
        src_len: number of source tokens, possibly a mean.
        tgt_len: number of target tokens, possibly a mean.
    """
    if isinstance(model, Transformer):
        return stack_multiply_adds(model.encoder, src_len) + stack_multiply_adds(
            model.decoder, tgt_len, src_len
        )
    return stack_multiply_adds(model, tgt_len + (src_len if isinstance(model, DecoderOnly) else 0))


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
    positions = -(-queries // fast.CHUNK) * fast.CHUNK
    return module.num_heads * positions * (fast.CHUNK * (size + value_size + 1) + 2 * size * (value_size + 1))
