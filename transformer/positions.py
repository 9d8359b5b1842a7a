"""Position encodings, and the module that adds them to embeddings.

Shapes: B sentences, T tokens, D model width.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .config import BUCKETS, MAX_POSITIONS, LayerConfig
from .masks import has_checkable_values, mask_bias, require

BASE = 10000.0
"""Wavelengths range from 2 pi to BASE * 2 pi positions (Vaswani et al. 2017, section 3.5)."""

MIN_CACHED = 128


Dropout: Callable[[float], nn.Module] = nn.Dropout
"""y = x m / (1 - p) in training, where m is 0 with probability p, else 1."""


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Return PE(p, 2i) = sin(p / BASE^(2i / size)) and PE(p, 2i + 1) = cos(p / BASE^(2i / size)), in float64.

    Vaswani et al. 2017, section 3.5. Positions may have any shape; ``size`` is even.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size
    angles = positions.double().unsqueeze(-1) * torch.exp(-math.log(BASE) * exponents)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class CachedSinusoids:
    """Sinusoids of positions from 0 on, computed again when they are too few; no part of the weights."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._stored: Tensor | None = None

    def __call__(self, positions: Tensor, end: int, like: Tensor) -> Tensor:
        """Return the sinusoids of positions below ``end``, of the dtype and device of ``like``."""
        if torch.compiler.is_compiling():
            return sinusoids(positions, self.size).to(like.dtype)
        cached = self._stored
        if cached is None or len(cached) < end or (cached.dtype, cached.device) != (like.dtype, like.device):
            with torch.inference_mode(False):  # a tensor made in that mode could not be used in training
                stored = torch.arange(max(MIN_CACHED, 2 * end), device=like.device)
                cached = self._stored = sinusoids(stored, self.size).to(like.dtype)
        return torch.nn.functional.embedding(positions, cached)


class PositionalEmbedding(nn.Module):
    """dropout(sqrt(D) E[token] + PE(position)): Vaswani et al. 2017, sections 3.4, 3.5 and 5.4.

    E starts as normal noise with standard deviation D^-0.5. Scaled by sqrt(D) it is about as large as the
    sinusoids, and as a tied output matrix it maps normalised states to logits with deviation 1. PE is, by the
    config's ``positions``:

    - "sinusoidal": ``sinusoids``.
    - "learned": one vector per position (Gehring et al. 2017, section 3.1), initialised and scaled as E is.
    - "network": W2 gelu(W1 sinusoids + b1) + b2, as wide as the model; compare Li et al. 2021, equations 2
      and 3, whose frequencies are learned.
    - "concat", "concat-learned": [e; PE] in place of e + PE, where e are the first D - P numbers of the
      scaled embedding and PE are P sinusoids or a learned vector. The last P columns of E are not used here,
      so that E has the width of the output layer, with which it may be tied.
    - others: nothing; attention knows the positions ("rotary", "relative", "alibi", "t5"), or none does.

    In training, ``word_dropout`` drops whole embeddings before PE is added: Sennrich et al. 2016, "Edinburgh
    neural machine translation systems for WMT 16".
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.is_concatenated = config.positions.startswith("concat")
        size = config.concatenated_size if self.is_concatenated else config.d_model
        learned = config.positions in ("learned", "concat-learned")
        count = config.max_positions or MAX_POSITIONS
        self.places = nn.Embedding(count, size) if learned else None
        self.network: nn.Sequential | None = None
        if config.positions == "network":
            self.network = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))
        has_sinusoids = config.positions in ("sinusoidal", "concat", "network")
        self.sinusoids = CachedSinusoids(size) if has_sinusoids else None
        self.word_dropout = nn.Dropout(config.word_dropout) if config.word_dropout else None
        self.dropout = Dropout(config.dropout)

    def forward(self, embedded: Tensor, positions: Tensor, end: int) -> Tensor:
        """Scale embedded tokens (B, T, D) and add encodings: the input of the first layer, (B, T, D).

        The positions, (T,), (B, T) or (B, 1), are below ``end``; a ValueError says that one is beyond the
        learned ones.
        """
        if self.word_dropout is not None:
            embedded = embedded * self.word_dropout(embedded.new_ones(*embedded.shape[:-1], 1))
        x = embedded * self.scale
        encoded = None
        if self.sinusoids is not None:
            encoded = self.sinusoids(positions, end, x)
            if self.network is not None:
                encoded = self.network(encoded)
        elif self.places is not None:
            count = self.places.num_embeddings
            if end > count and has_checkable_values(positions):
                message = f"a text or translation is longer than the {count} learned positions: "
                require((positions < count).all(), f"{message}raise max_positions")
            encoded = self.places(positions) * math.sqrt(self.places.embedding_dim)
        if self.is_concatenated and encoded is not None:
            words = x[..., : -encoded.size(-1)]
            x = torch.cat((words, encoded.expand(*words.shape[:-1], -1).to(words.dtype)), dim=-1)
        elif encoded is not None:
            x = x + encoded
        output: Tensor = self.dropout(x)
        return output


# Positions in self-attention: rotary, relative, T5's, and ALiBi.
#
# Attention to the source has none of them: they are defined for the positions of one sequence. Shapes: B
# sentences, Q query and S key positions, H heads of width E, K hypotheses.


class Relation(NamedTuple):
    """Mask and distances of positions in self-attention; computed once for all layers."""

    mask: Tensor | None = None
    """True where attention is allowed, or a bias that is -inf elsewhere; broadcasts to (B, H, Q, S)."""
    rotation: Tensor | None = None
    """exp(i angle), complex, of the new queries and keys, (Q, 1, E / 2) or (B, Q, 1, E / 2)."""
    bucket: Tensor | None = None
    """Index of the learned vector of each distance, (Q, S) or (B, 1, Q, S)."""
    lengths: Tensor | None = None
    """Lengths of the sentences (B,) on the CPU, for a recurrence in place of attention; None: not known."""


class AttentionPositions(nn.Module):
    """Distances between positions, as the self-attention of ``config.positions`` needs them.

    - "rotary": R(p) turns the pair of numbers (2i, 2i + 1) of queries and keys at position p by the angle
      p / 10000^(2i / E), so that q . k depends on the distance alone: Su et al. 2021, equations 14 and 15.
    - "relative": see ``RelativeVectors``.
    - "t5": the score of head h is raised by a learned number of h and of the range that the distance is in
      (``distance_bucket``), which all layers of the stack share: Raffel et al. 2020, section 2.1.
    - "alibi": the score of head h is lowered by m_h |i - j|, where m_h = 2^(-8h / H), h = 1, ..., H: Press et
      al. 2022, section 3. The paper has decoders only; in an encoder the bias is the same in both directions
      here. For H that is no power of two, m is that of the authors' code.
    """

    slopes: Tensor

    def __init__(self, config: LayerConfig, *, causal: bool = False) -> None:
        super().__init__()
        self.limit, self.causal = config.distance_limit, causal
        self.bias = nn.Embedding(BUCKETS, config.num_heads) if config.positions == "t5" else None
        self.width = config.num_heads * config.query_size
        self.angles = CachedSinusoids(config.query_size) if config.positions == "rotary" else None
        slopes = alibi_slopes(config.num_heads) if config.positions == "alibi" else []
        slopes_column = torch.tensor(slopes, dtype=torch.float64).view(-1, 1, 1)
        self.register_buffer("slopes", slopes_column, persistent=False)

    def forward(self, queries: Tensor, keys: Tensor, end: int, mask: Tensor | None, like: Tensor) -> Relation:
        """Relate positions for all layers.

        Args:
            queries: positions of the new tokens, (Q,) or (B, Q).
            keys: positions of all tokens that they attend to, (S,) or (B, S).
            end: a number above all positions.
            mask: True where attention is allowed, broadcasting to (B, H, Q, S); None allows all.
            like: a tensor with the type and device of the states.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        if self.angles is not None:
            angles = self.angles(queries, end, like.new_empty(0, dtype=dtype))
            sines = angles.view(*queries.shape, 1, -1, 2)
            return Relation(mask, rotation=torch.view_as_complex(sines.flip(-1)))
        distance = keys.unsqueeze(-2) - queries.unsqueeze(-1)
        if self.bias is not None:
            bias = self.bias(distance_bucket(distance, self.limit, self.causal)).movedim(-1, -3)
            return Relation(mask_bias(bias.to(dtype), mask))
        distance = distance if distance.dim() == 2 else distance.unsqueeze(1)
        if self.slopes.numel() == 0:
            return Relation(mask, bucket=distance.clamp(-self.limit, self.limit) + self.limit)
        return Relation(mask_bias(self.slopes.to(dtype) * -distance.abs(), mask))


def distance_bucket(distance: Tensor, limit: int, causal: bool) -> Tensor:
    """Return the range that each distance j - i is in, of ``BUCKETS``: Raffel et al. 2020, section 2.1, code.

    Half of the ranges are single distances, the others grow with the logarithm up to ``limit``; beyond it all
    distances are in the last. Without ``causal`` each direction has half of them.
    """
    count = BUCKETS if causal else BUCKETS // 2
    steps, single = (-distance).clamp(min=0) if causal else distance.abs(), count // 2
    growth = torch.log(steps.clamp(min=1) / single) / math.log(limit / single)
    far = (single + (growth * (count - single)).long()).clamp(max=count - 1)
    bucket = torch.where(steps < single, steps, far)
    return bucket if causal else bucket + count * (distance > 0)


def alibi_slopes(heads: int) -> list[float]:
    """Return m_h of each head: 2^(-8h / H) if H is a power of two.

    For other H they are those of the next power of two below, then every second one of that above.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of numbers of x (..., E) by its angle; rotation is exp(i angle), complex, (..., E / 2).

    As products of complex numbers this takes a quarter of the time, with its gradient, of the products and
    sums of their parts (fp32 and bf16, one thread).
    """
    pairs = x.to(rotation.real.dtype).view(*x.shape[:-1], -1, 2)
    turned = torch.view_as_real(torch.view_as_complex(pairs) * rotation)
    return turned.flatten(-2).to(x.dtype)


class RelativeVectors(nn.Module):
    """e_ij = q_i . (k_j + a^K_ij) / sqrt(E), z_i = sum_j alpha_ij (v_j + a^V_ij): Shaw et al. 2018, eq. 3-4.

    a_ij is the vector of the distance j - i, clipped to [-k, k]; the heads of a layer share it (section 3.3).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        count = 2 * config.distance_limit + 1
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


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from .fast import Dropout
