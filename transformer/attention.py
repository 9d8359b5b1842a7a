"""Scaled dot-product attention: Vaswani et al. 2017, section 3.2.1.

Shapes: B sentences, Q queries, S keys, H heads of width E, K hypotheses, L tokens generated so far.
Masks broadcast to (B, H, Q, S). They are bool, True = may be attended, or a bias that is added to the scores,
-inf where attention is forbidden.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .masks import mask_scores, restrict_to_past

Attend = Callable[[Tensor, Tensor, Tensor | None, Tensor | None, bool, float], Tensor]
"""An attention function: queries (B, H, Q, E), keys and values (B, H, S, E), mask, causal, dropout ->
contexts (B, H, Q, E). Arguments as for ``plain_attention``. Values may have another width than keys. Only
relative positions pass None for them, and receive the weights after dropout, (B, H, Q, S)."""

Normalise = Callable[[Tensor], Tensor]
CHUNK = 64
"""Positions per chunk of causal linear attention; sentences of at most so many have one chunk."""


class KeysValues(NamedTuple):
    """Projected keys and values, (B, H, S, E) each, of the positions that are attended to."""

    keys: Tensor
    values: Tensor


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax of the last dimension."""
    return scores.softmax(dim=-1)


def hard_weights(scores: Tensor) -> Tensor:
    """Return 1 at the first largest score and 0 elsewhere, with the gradient of softmax (straight-through).

    Bengio et al. 2013, section 4, propose this estimator for a binary unit.
    """
    soft = scores.softmax(dim=-1)
    choice = torch.zeros_like(soft).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1.0)
    return choice + (soft - soft.detach())


def plain_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    normalise: Normalise = softmax,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(Q K^T / sqrt(E)) V, equation 1, step by step.

    Queries are (B, H, Q, E), keys and values (B, H, S, E). The mask is True where attention is allowed, or a
    bias; each query needs at least one key. ``causal`` also forbids query i all keys after i (Q = S);
    ``normalise`` maps scores to weights.

    Returns the contexts (B, H, Q, E) and the weights before dropout (B, H, Q, S), exactly 0 where forbidden.
    """
    weights = attention_weights(queries, keys, mask, causal, normalise).to(values.dtype)
    return F.dropout(weights, dropout) @ values, weights


def attention_weights(
    queries: Tensor, keys: Tensor, mask: Tensor | None, causal: bool, normalise: Normalise = softmax
) -> Tensor:
    """Compute the weights (B, H, Q, S) of ``plain_attention``; arguments as there."""
    scores = (queries / math.sqrt(queries.size(-1))) @ keys.transpose(-2, -1)
    if causal:
        mask = restrict_to_past(mask, scores.size(-1), scores.device)
    return normalise(mask_scores(scores, mask))


def hard_attention(
    queries: Tensor, keys: Tensor, values: Tensor | None, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Compute the contexts of ``plain_attention`` with ``hard_weights``: the value of the best key alone."""
    if values is None:
        return F.dropout(attention_weights(queries, keys, mask, causal, hard_weights), dropout)
    return plain_attention(queries, keys, values, mask, causal, dropout, hard_weights)[0]


def single_query_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the contexts of ``plain_attention`` of one query (Q = 1) per head, without dropout."""
    return plain_attention(queries, keys, values, mask, False, 0.0)[0]


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor | None, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Compute the contexts of ``plain_attention`` by the fastest implementation for the device.

    On a GPU these are torch's kernels, on a CPU the formula itself. Forward and backward pass of 3,300 tokens
    in sentences of 17, 100 and 400 tokens, with 4 heads of 64, took 3, 7 and 20 ms on two cores; torch's
    kernel took 39, 28 and 25 ms (fp32, torch 2.13). Without values the weights after dropout are returned.
    """
    if values is None:
        return F.dropout(attention_weights(queries, keys, mask, causal), dropout)
    if queries.device.type == "cpu":
        if queries.size(-2) == 1 and not keys.is_contiguous() and not dropout:
            return single_query_attention(queries, keys, values, mask)
        return plain_attention(queries, keys, values, mask, causal, dropout)[0]
    if causal and mask is not None:  # torch's kernels take one or the other
        mask, causal = restrict_to_past(mask, keys.size(-2), keys.device), False
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(queries.dtype)
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout, causal)


def prefix_attention(
    queries: Tensor,
    generated: KeysValues,
    prefix: KeysValues,
    mask: Tensor | None,
    normalise: Normalise = softmax,
) -> tuple[Tensor, Tensor]:
    """Attend to the tokens of one hypothesis and to the prefix that all hypotheses of a sentence share.

    One softmax covers both, and neither is copied. For 5 hypotheses each of 16 or 64 sentences, on one core,
    copying the prefix for every hypothesis took 3 to 8 times as long; attending from all hypotheses of a
    sentence at once, with the tokens of the others masked, took 1.2 to 5 times as long (fp32, torch 2.13).

    Queries are (B, K, H, E), the generated tokens time first, (L, B, K, H, E), the prefix is (B, H, S, E);
    the mask is True at tokens that may be attended, or a bias, and broadcasts to (B, K, H, S + L). Returns
    the contexts (B, K, H, E) and the weights (B, K, H, S + L).
    """
    queries = queries / math.sqrt(queries.size(-1))
    prefix_scores = queries.transpose(1, 2) @ prefix.keys.transpose(-2, -1)  # (B, H, K, S)
    generated_scores = queries.unsqueeze(3) @ generated.keys.permute(1, 2, 3, 4, 0)  # (B, K, H, 1, L)
    scores = torch.cat((prefix_scores.transpose(1, 2), generated_scores.squeeze(3)), dim=-1)
    weights = normalise(mask_scores(scores, mask)).to(queries.dtype)  # (B, K, H, S + L)
    src_len = prefix_scores.size(-1)
    prefix_context = weights[..., :src_len].transpose(1, 2) @ prefix.values  # (B, H, K, E)
    generated_values = generated.values.permute(1, 2, 3, 0, 4)  # (B, K, H, L, E)
    generated_context = weights[..., src_len:].unsqueeze(3) @ generated_values  # (B, K, H, 1, E)
    return prefix_context.transpose(1, 2) + generated_context.squeeze(3), weights


def record_weights(attend: Attend, recorded: list[Tensor]) -> Attend:
    """Wrap ``attend`` so that each call appends its weights before dropout, (B, H, Q, S), to a list.

    They are the contexts of one-hot values: any attention that is linear in its values can be recorded.
    """

    def attend_and_record(queries: Tensor, keys: Tensor, values: Tensor | None, *rest: Any) -> Tensor:
        one_hot = torch.eye(keys.size(-2), dtype=keys.dtype, device=keys.device)
        mask, causal, _ = rest
        recorded.append(attend(queries, keys, one_hot.expand(*keys.shape[:-1], -1), mask, causal, 0.0))
        return attend(queries, keys, values, *rest)

    return attend_and_record


# Linear attention, without a softmax: Katharopoulos et al. 2020.
#
# Shapes: B sentences, Q queries, S keys, H heads, E width of a feature vector, C width of a value. Masks are
# bool, True = may be attended, and broadcast to (B, H, Q, S).


def elu_features(x: Tensor) -> Tensor:
    """Return elu(x) + 1, equation 7: x + 1 above 0 and exp(x) below.

    It is computed in these two parts, since elu(x) + 1 of a negative x in bfloat16 keeps no digits.
    """
    # Versions of torch differ in the gradient of clamp at its bound.
    return (torch.where(x > 0, 0, x).exp() + x.relu()).to(x.dtype)


def shares(scores: Tensor) -> Tensor:
    """Return e_j / sum_k e_k along the last dimension, for scores of at least 0, or -inf where forbidden."""
    scores = scores.relu()
    return scores / scores.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)


def is_factored(queries: float, keys: float, size: int, value_size: int, *, causal: bool) -> bool:
    """Return whether linear attention computes Q (K^T V), not (Q K^T) V, for one head; lengths may be means.

    With ``causal`` each chunk by itself is (Q K^T) V.
    """
    if causal:
        return queries > CHUNK
    return (queries + keys) * size * (value_size + 1) < queries * keys * (size + value_size)


def linear_attention(
    queries: Tensor, keys: Tensor, values: Tensor | None, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Compute sum_j (q_i . k_j) v_j / sum_j (q_i . k_j) for ``elu_features`` q and k, equation 4.

    The cheaper of two orders is computed (``is_factored``): (Q K^T) V, or Q (K^T V) as in equations 5 and 6,
    which is linear in the number of positions; always the first one for a mask that is not the same for all
    queries. Arguments as for ``plain_attention``, but the mask is bool and there is no dropout of weights,
    which do not exist.
    """
    assert values is not None
    assert not dropout
    sizes = queries.size(-2), keys.size(-2), queries.size(-1), values.size(-1)
    depends_on_query = mask is not None and mask.size(-2) != 1
    if depends_on_query or not is_factored(*sizes, causal=causal):
        return plain_attention(queries, keys, values, mask, causal, dropout, shares)[0]
    if mask is not None:
        keys = keys.masked_fill(~mask.transpose(-2, -1), 0)
    # The last column of the products is the denominator.
    values = torch.cat((values, torch.ones_like(values[..., :1])), dim=-1)
    sums = causal_sums(queries, keys, values) if causal else queries @ (keys.transpose(-2, -1) @ values)
    return sums[..., :-1] / sums[..., -1:].clamp_min(torch.finfo(sums.dtype).tiny)


def causal_sums(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute sum_{j <= i} (q_i . k_j) v_j, equations 8 to 12, (B, H, T, C), in chunks of positions.

    A sum K^T V over each chunk, and the sums over all chunks before it, stand for the earlier positions. With
    chunks of one position these would be T matrices (E, C) per head, more memory than the weights take.
    """
    length = queries.size(-2)
    queries, keys, values = (in_chunks(part, CHUNK) for part in (queries, keys, values))
    inside = (queries @ keys.transpose(-2, -1)).tril() @ values  # (B, H, chunks, CHUNK, C)
    of_chunks = keys.transpose(-2, -1) @ values  # (B, H, chunks, E, C)
    wide = of_chunks.to(torch.promote_types(of_chunks.dtype, torch.float32))
    before = (cumulative_sum(wide) - wide).to(of_chunks.dtype)
    return (inside + queries @ before).flatten(-3, -2)[..., :length, :]


def cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(-3); torch's own has no deterministic form on a GPU: there, one sum per chunk."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return torch.stack([x[..., : end + 1, :, :].sum(-3) for end in range(x.size(-3))], dim=-3)
    return x.cumsum(-3)


def in_chunks(x: Tensor, size: int) -> Tensor:
    """Split the positions of x (B, H, T, E) into chunks: (B, H, chunks, size, E), 0 after the last one."""
    padded = F.pad(x, (0, 0, 0, -x.size(-2) % size))
    return padded.reshape(*x.shape[:2], -1, size, x.size(-1))


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from .fast import single_query_attention
