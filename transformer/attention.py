"""Scaled dot-product attention: Vaswani et al. 2017, section 3.2.1.

Shapes: B sentences, Q queries, S keys, H heads of width E, K hypotheses, L tokens written so far.
Masks are bool, True = may be attended, and broadcast to (B, H, Q, S).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .masks import past

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool, float], Tensor]
"""queries (B, H, Q, E), keys and values (B, H, S, E), mask, causal, dropout -> contexts (B, H, Q, E)."""


class KeysValues(NamedTuple):
    """What is attended to, projected once."""

    keys: Tensor
    """(B, H, S, E)"""
    values: Tensor
    """(B, H, S, E)"""


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(E)) v, equation 1, written out.

    Args:
        queries: (B, H, Q, E).
        keys: (B, H, S, E).
        values: (B, H, S, E).
        mask: True where attention is allowed; each row needs at least one True. None allows all.
        causal: also forbid query i all keys after i (Q = S).
        dropout: share of the weights dropped.

    Returns:
        The contexts (B, H, Q, E) and the weights before dropout (B, H, Q, S), exactly 0 where forbidden.
    """
    scores = (queries / math.sqrt(queries.size(-1))) @ keys.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill_(~mask, float("-inf"))
    if causal:
        scores = scores.masked_fill_(~past(scores.size(-1), scores.device), float("-inf"))
    weights = scores.softmax(dim=-1).to(values.dtype)
    return F.dropout(weights, dropout) @ values, weights


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Compute the contexts of ``plain_attention`` in the fastest way there is.

    On a GPU that is torch's kernels, on a CPU the written-out formula: forward and backward of 3,300 tokens
    in sentences of 17, 100 and 400, with 4 heads of 64, took it 3, 7 and 20 ms on two cores, torch's kernel
    39, 28 and 25 ms (fp32, torch 2.13; in bf16 it loses by more).
    """
    if queries.device.type == "cpu":
        if queries.size(-2) == 1 and not keys.is_contiguous() and not dropout:
            return _one_query(queries, keys, values, mask)
        return plain_attention(queries, keys, values, mask, causal, dropout)[0]
    if causal and mask is not None:  # torch's kernels take one or the other
        mask, causal = mask & past(keys.size(-2), keys.device), False
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout, causal)


def _one_query(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """``plain_attention`` of one query, as sums of products: a matrix product has no use for one row.

    Over a cache, whose keys lie time first, it takes half the time or less: 135 us against 380 for 64 queries
    of 4 heads to 20 keys of 64, on one core (fp32; 220 and 430 in bf16); over a memory, which is contiguous,
    about as long, and in bf16 longer.
    """
    scores = (queries / math.sqrt(queries.size(-1)) * keys).sum(dim=-1)  # (B, H, S)
    if mask is not None:
        scores = scores.masked_fill_(~mask.squeeze(-2), float("-inf"))
    weights = scores.softmax(dim=-1).unsqueeze(-1)
    return (weights * values).sum(dim=-2, keepdim=True)


def prefix_attention(queries: Tensor, own: KeysValues, prefix: KeysValues, mask: Tensor | None) -> Tensor:
    """Let each hypothesis attend to what it has written and to a prefix that its sentence's others share.

    One softmax over both, each read where it lies. For 5 hypotheses each of 16 or 64 sentences, on one core,
    copying the prefix for every hypothesis and fusing took 3 to 8 times as long; letting all of a sentence's
    hypotheses attend at once, the others' tokens hidden by a mask, 1.2 to 5 times (fp32, torch 2.13).

    Args:
        queries: (B, K, H, E).
        own: keys and values of the hypotheses, time first, (L, B, K, H, E) each.
        prefix: keys and values of the sentences.
        mask: real tokens of the prefix, (B, 1, 1, S).

    Returns:
        The contexts, (B, K, H, E).
    """
    queries = queries / math.sqrt(queries.size(-1))
    far = queries.transpose(1, 2) @ prefix.keys.transpose(-2, -1)  # (B, H, K, S)
    if mask is not None:
        far = far.masked_fill(~mask, float("-inf"))
    near = queries.unsqueeze(3) @ own.keys.permute(1, 2, 3, 4, 0)  # (B, K, H, 1, L)
    weights = torch.cat((far.transpose(1, 2), near.squeeze(3)), dim=-1).softmax(dim=-1)
    split, weights = far.size(-1), weights.to(queries.dtype)  # (B, K, H, S + L)
    shared = weights[..., :split].transpose(1, 2) @ prefix.values  # (B, H, K, E)
    alone = weights[..., split:].unsqueeze(3) @ own.values.permute(1, 2, 3, 0, 4)  # (B, K, H, 1, E)
    return shared.transpose(1, 2) + alone.squeeze(3)


def recording(attend: Attend, found: list[Tensor]) -> Attend:
    """Wrap ``attend`` so that each call adds its weights (B, H, Q, S), before dropout, to ``found``.

    They are what it makes of one-hot values, whatever function of queries and keys its weights are.
    """

    def record(
        queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
    ) -> Tensor:
        one_hot = torch.eye(keys.size(-2), dtype=values.dtype, device=values.device)
        found.append(attend(queries, keys, one_hot.expand(*keys.shape[:-1], -1), mask, causal, 0.0))
        return attend(queries, keys, values, mask, causal, dropout)

    return record
