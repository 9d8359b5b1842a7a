"""Positions in self-attention: rotary, relative, and ALiBi.

Attention to the source knows none of them: a target and a source position have no distance (all three are
defined for one sequence). Shapes: B sentences, Q query and S key positions, H heads of width E, K hypotheses.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import LayerConfig
from .positions import CachedSinusoids

KINDS = ("rotary", "relative", "alibi")
"""Values of ``positions`` that self-attention implements."""


class Distances(NamedTuple):
    """What a self-attention needs of the positions, computed once for all layers."""

    rotation: Tensor | None = None
    """Sine and cosine of each angle, (Q, 1, E / 2, 2) or (B, Q, 1, E / 2, 2), of the new queries and keys."""
    bucket: Tensor | None = None
    """Which learned vector belongs to each distance, (Q, S) or (B, 1, Q, S)."""


class AttentionPositions(nn.Module):
    """Distances between positions, as the self-attention of ``config.positions`` needs them.

    - "rotary": R(p) turns the pair of numbers (2i, 2i + 1) of queries and keys at position p by the angle
      p / 10000^(2i / E), so that q . k depends on the distance alone: Su et al. 2021, equations 14 and 15.
    - "relative": see ``RelativeVectors``.
    - "alibi": the score of head h is lowered by m_h |i - j|, where m_h = 2^(-8h / H), h = 1, ..., H: Press et
      al. 2022, section 3. The paper has decoders only; in an encoder the bias is the same in both directions
      here. For H that is no power of two, m is that of the authors' code.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.kind, self.limit = config.positions, config.distance_limit or 0
        self.angles = CachedSinusoids(config.query_size) if config.positions == "rotary" else None
        self.slopes = alibi_slopes(config.num_heads) if config.positions == "alibi" else []

    def forward(
        self, queries: Tensor, keys: Tensor, end: int, mask: Tensor | None, like: Tensor
    ) -> tuple[Tensor | None, Distances]:
        """Prepare positions for all layers.

        Args:
            queries: positions of the new tokens, (Q,) or (B, Q).
            keys: positions of all tokens that they attend to, (S,) or (B, S).
            end: a number above all positions.
            mask: True where attention is allowed, broadcasting to (B, H, Q, S); None allows all.
            like: a tensor with the type and device of the states.

        Returns:
            The mask, for "alibi" as a bias that is -inf where attention is forbidden, and the distances.
        """
        return self._bias(queries, keys, mask, like), self._distances(queries, keys, end, like)

    def _distances(self, queries: Tensor, keys: Tensor, end: int, like: Tensor) -> Distances:
        if self.angles is not None:
            wide = like.new_empty(0, dtype=torch.promote_types(like.dtype, torch.float32))
            angles = self.angles(queries, end, wide)
            return Distances(rotation=angles.view(*queries.shape, 1, -1, 2))
        if self.kind == "relative":
            distance = keys.unsqueeze(-2) - queries.unsqueeze(-1)
            bucket = distance.clamp(-self.limit, self.limit) + self.limit
            return Distances(bucket=bucket if queries.dim() == 1 else bucket.unsqueeze(1))
        return Distances()

    def _bias(self, queries: Tensor, keys: Tensor, mask: Tensor | None, like: Tensor) -> Tensor | None:
        if not self.slopes:
            return mask
        dtype = torch.promote_types(like.dtype, torch.float32)
        slopes = torch.tensor(self.slopes, dtype=dtype, device=like.device).view(-1, 1, 1)
        distance = (keys.unsqueeze(-2) - queries.unsqueeze(-1)).abs()
        bias = slopes * -(distance if distance.dim() == 2 else distance.unsqueeze(1))
        return bias if mask is None else bias.masked_fill(~mask, float("-inf"))


def attention_positions(config: LayerConfig) -> AttentionPositions | None:
    """Build the module; None for positions that self-attention knows nothing of."""
    return AttentionPositions(config) if config.positions in KINDS else None


def alibi_slopes(heads: int) -> list[float]:
    """Return m_h of each head: 2^(-8h / H) if H is a power of two.

    For other H they are those of the next power of two below, then every second one of that above.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of numbers of x (..., E) by its angle; rotation is (..., E / 2, 2), sine and cosine."""
    even, odd = x.view(*x.shape[:-1], -1, 2).unbind(-1)
    sine, cosine = rotation.unbind(-1)
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
    output: Tensor = turned.flatten(-2).to(x.dtype)
    return output


class RelativeVectors(nn.Module):
    """e_ij = q_i . (k_j + a^K_ij) / sqrt(E), z_i = sum_j alpha_ij (v_j + a^V_ij): Shaw et al. 2018, eq. 3-4.

    a_ij is the vector of the distance j - i, clipped to [-k, k]; the heads of a layer share it (section 3.3).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        count = 2 * (config.distance_limit or 0) + 1
        self.keys = nn.Embedding(count, config.query_size)
        self.values = nn.Embedding(count, config.value_size or config.query_size)

    def scores(self, queries: Tensor, bucket: Tensor) -> Tensor:
        """Return q_i . a^K_ij / sqrt(E), (B, H, Q, S), for queries (B, H, Q, E)."""
        by_distance: Tensor = queries / math.sqrt(queries.size(-1)) @ self.keys.weight.t()
        return by_distance.gather(-1, bucket.expand(*queries.shape[:-1], -1))

    def contexts(self, weights: Tensor, bucket: Tensor) -> Tensor:
        """Return sum_j alpha_ij a^V_ij, (B, H, Q, E), for weights (B, H, Q, S)."""
        by_distance = weights.new_zeros(*weights.shape[:-1], self.values.num_embeddings)
        by_distance = by_distance.scatter_add(-1, bucket.expand_as(weights), weights)
        contexts: Tensor = by_distance @ self.values.weight.to(weights.dtype)
        return contexts
