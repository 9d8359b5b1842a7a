"""Linear attention, without a softmax: Katharopoulos et al. 2020.

Shapes: B sentences, Q queries, S keys, H heads, E width of a feature vector, C width of a value. Masks are
bool, True = may be attended, and broadcast to (B, H, Q, S).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .attention import plain_attention
from .flops import CHUNK, is_factored


def elu_features(x: Tensor) -> Tensor:
    """Return elu(x) + 1, equation 7: x + 1 above 0 and exp(x) below.

    It is computed in these two parts, since elu(x) + 1 of a negative x in bfloat16 keeps no digits.
    """
    return (x.clamp(max=0).exp() + x.relu()).to(x.dtype)


def shares(scores: Tensor) -> Tensor:
    """Return e_j / sum_k e_k along the last dimension, for scores of at least 0, or -inf where forbidden."""
    scores = scores.relu()
    return scores / scores.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)


def linear_attention(
    queries: Tensor, keys: Tensor, values: Tensor | None, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Compute sum_j (q_i . k_j) v_j / sum_j (q_i . k_j) for features q and k, equation 4.

    The same sum in two orders: (Q K^T) V, or Q (K^T V) as in equations 5 and 6, which is linear in the number
    of positions. The cheaper one is computed (``is_factored``); the first one for a mask that is not the same
    for all queries, and in programs of torch.export, whose lengths are open.

    Args:
        queries: ``elu_features`` of queries, (B, H, Q, E).
        keys: ``elu_features`` of keys, (B, H, S, E).
        values: (B, H, S, C).
        mask: True where attention is allowed; each query needs at least one key. None allows all.
        causal: also forbid query i all keys after i (Q = S).
        dropout: of weights, which do not exist here: 0.

    Returns:
        The contexts, (B, H, Q, C).
    """
    assert values is not None
    assert not dropout
    sizes = queries.size(-2), keys.size(-2), queries.size(-1), values.size(-1)
    depends_on_query = mask is not None and mask.size(-2) != 1
    if depends_on_query or torch.compiler.is_exporting() or not is_factored(*sizes, causal=causal):
        return plain_attention(queries, keys, values, mask, causal, dropout, shares)[0]
    if mask is not None:
        keys = keys.masked_fill(~mask.transpose(-2, -1), 0)
    # The last column of the products is the denominator.
    values = torch.cat((values, torch.ones_like(values[..., :1])), dim=-1)
    sums = _causal_sums(queries, keys, values) if causal else queries @ (keys.transpose(-2, -1) @ values)
    return sums[..., :-1] / sums[..., -1:].clamp_min(torch.finfo(sums.dtype).tiny)


def _causal_sums(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute sum_{j <= i} (q_i . k_j) v_j, equations 8 to 12, (B, H, T, C), in chunks of positions.

    A sum K^T V over each chunk, and the sums over all chunks before it, stand for the earlier positions. With
    chunks of one position these would be T matrices (E, C) per head, more memory than the weights take.
    """
    length = queries.size(-2)
    queries, keys, values = (_in_chunks(part) for part in (queries, keys, values))
    inside = (queries @ keys.transpose(-2, -1)).tril() @ values  # (B, H, chunks, CHUNK, C)
    of_chunks = keys.transpose(-2, -1) @ values  # (B, H, chunks, E, C)
    wide = of_chunks.to(torch.promote_types(of_chunks.dtype, torch.float32))
    before = (_cumulative_sum(wide) - wide).to(of_chunks.dtype)
    return (inside + queries @ before).flatten(-3, -2)[..., :length, :]


def _cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(-3); torch's own has no deterministic form on a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return _sum_prefixes(x)
    return x.cumsum(-3)


def _sum_prefixes(x: Tensor) -> Tensor:
    """Compute ``_cumulative_sum`` as one sum per chunk."""
    return torch.stack([x[..., : end + 1, :, :].sum(-3) for end in range(x.size(-3))], dim=-3)


def _in_chunks(x: Tensor) -> Tensor:
    """Split the positions of x (B, H, T, E) into chunks: (B, H, chunks, CHUNK, E), 0 after the last one."""
    padded = F.pad(x, (0, 0, 0, -x.size(-2) % CHUNK))
    return padded.view(*x.shape[:2], -1, CHUNK, x.size(-1))
