"""Multi-head scaled dot-product attention: Vaswani et al. 2017, section 3.2.

Shapes: B sentences, Q queries, S keys, K hypotheses, H heads of width E, D = H E model width.
Masks are bool, True = may be attended, and broadcast to (B, H, Q, S).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .cache import KeyValueCache
from .config import TransformerConfig

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool, float], Tensor]
"""queries (B, H, Q, E), keys and values (B, H, S, E), mask, causal, dropout -> contexts (B, H, Q, E)."""


class KeysValues(NamedTuple):
    """What cross-attention reads of a source sentence, projected once."""

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
        scores = scores.masked_fill(~mask, float("-inf"))
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    weights = scores.softmax(dim=-1).to(values.dtype)
    return F.dropout(weights, dropout) @ values, weights


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Compute the contexts of ``plain_attention`` in the fastest way there is.

    That is torch's kernels, but for bf16 on a CPU: forward and backward of 230 sentences of 15 tokens, with
    4 heads of 64, took them 59 ms on one core, the written-out formula 9 ms (in fp32 both 15 ms; torch 2.13).
    """
    if queries.device.type == "cpu" and queries.dtype in (torch.bfloat16, torch.float16):
        return plain_attention(queries, keys, values, mask, causal, dropout)[0]
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout, causal)


class SelfAttention(nn.Module):
    """Every position of a sequence attends to the sequence; queries, keys and values are one product."""

    def __init__(self, config: TransformerConfig, *, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.causal, self.dropout = config.num_heads, causal, config.attention_dropout
        self.project_in = nn.Linear(config.d_model, 3 * config.d_model)
        self.project_out = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend = fused_attention) -> Tensor:
        """Read x (B, T, D); returns (B, T, D)."""
        queries, keys, values = (
            split_heads(part, self.num_heads) for part in self.project_in(x).chunk(3, -1)
        )
        dropout = self.dropout if self.training else 0.0
        contexts = attend(queries, keys, values, mask, self.causal, dropout)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output

    def step(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """Read one more token x (B, K, D) of each hypothesis; returns (B, K, D)."""
        query, key, value = self.project_in(x).chunk(3, -1)
        past = cache.append(key, value)
        # Each hypothesis is a batch row of its own: (B K, H, 1, E) against (B K, H, length, E).
        queries = query.reshape(-1, self.num_heads, 1, query.size(-1) // self.num_heads)
        keys, values = (split_heads(part.flatten(1, 2).transpose(0, 1), self.num_heads) for part in past)
        context = fused_attention(queries, keys, values, None, False, 0.0)
        output: Tensor = self.project_out(context.reshape(x.shape))
        return output


class CrossAttention(nn.Module):
    """Target positions attend to source states; keys and values are one product, made once a sentence."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        self.project_query = nn.Linear(config.d_model, config.d_model)
        self.project_memory = nn.Linear(config.d_model, 2 * config.d_model)
        self.project_out = nn.Linear(config.d_model, config.d_model)

    def remember(self, states: Tensor) -> KeysValues:
        """Project source states (B, S, D)."""
        keys, values = self.project_memory(states).chunk(2, -1)
        # Contiguous: made once, read by a batched product at every step.
        return KeysValues(*(split_heads(part, self.num_heads).contiguous() for part in (keys, values)))

    def forward(
        self, x: Tensor, memory: KeysValues, mask: Tensor, attend: Attend = fused_attention
    ) -> Tensor:
        """Let x (B, Q, D), target positions or hypotheses, read the memory; returns (B, Q, D)."""
        queries = split_heads(self.project_query(x), self.num_heads)
        dropout = self.dropout if self.training else 0.0
        contexts = attend(queries, memory.keys, memory.values, mask, False, dropout)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, D) to (B, H, T, E)."""
    return x.view(*x.shape[:-1], num_heads, -1).transpose(1, 2)
