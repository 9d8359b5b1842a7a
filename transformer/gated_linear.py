"""Gated linear attention, a recurrence whose state is a matrix per head: Yang et al. 2024.

See https://arxiv.org/abs/2312.06635; with other decays the recurrence is that of Mamba-2 (Dao and Gu 2024,
https://arxiv.org/abs/2405.21060) or RetNet (Sun et al. 2023, https://arxiv.org/abs/2307.08621).

Shapes: B sentences, K hypotheses, T positions in N chunks of C, H heads with keys of width E and values of
width F, D model width. Masks are bool, True = a real token.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import cumulative_sum, in_chunks
from .config import LayerConfig
from .multihead import RecurrentCache
from .positions import Relation

StateDecay = Literal["vector", "scalar", "fixed"]
CHUNK = 16
"""Most positions of a chunk: inside, all pairs are computed; the state passes from chunk to chunk."""
LOWEST = -4.0
"""Least log decay: in fp32, exp(CHUNK * LOWEST) and its inverse are 10^10 away from the ends of the range."""
RANK = 16
"""Width between the two matrices of the decays: section 4.4."""
TEMPERATURE = 16
"""Root that is taken of the decays, so that a state remembers from the first update on: section 4.4."""


def chunks(length: float) -> tuple[float, float]:
    """Return the number and the size of the chunks of a length, which may be a mean."""
    count = -(-length // CHUNK)
    return count, -(-length // count)


def gated_linear_attention(queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor) -> Tensor:
    """Compute o_t = S_t^T q_t, S_t = diag(a_t) S_t-1 + k_t v_t^T, S_0 = 0, in chunks: section 4.

    With b_i the sum of log a from the start of a chunk up to i, position i weighs j of the same chunk by (q_i
    exp(b_i)) . (k_j exp(-b_j)). A position with log a = 0 and k = 0 changes nothing. q and k are (B, H, T,
    E), v and o (B, H, T, F), log a (B, H, T, E or 1), between ``LOWEST`` and 0.
    """
    length = queries.size(2)
    count, size = map(int, chunks(length))
    q, k, v, log_a = (in_chunks(part, size) for part in (queries, keys, values, log_decay))
    b = cumulative_sum(log_a.unsqueeze(-1)).squeeze(-1)
    q, k = q * b.exp(), (k * (-b).exp()).transpose(-2, -1)
    outputs = (q @ k).tril() @ v
    if count > 1:
        decay = b[..., -1:, :].exp().transpose(-2, -1)
        outputs = outputs + q @ _states(decay, decay * (k @ v))
    return outputs.flatten(2, 3)[..., :length, :]


def _states(decay: Tensor, written: Tensor) -> Tensor:
    """Return the state before each chunk (B, H, N, E, F), from what each keeps (..., E, 1) and writes."""
    states = [torch.zeros_like(written[:, :, 0])]
    for factor, added in zip(decay.unbind(2)[:-1], written.unbind(2)[:-1], strict=True):
        states.append(factor * states[-1] + added)
    return torch.stack(states, dim=2)


class GatedLinearAttention(nn.Module):
    """y_t = W_O ([norm(o^1_t); ...; norm(o^H_t)] * swish(W_r x_t)), called like ``SelfAttention``.

    o is ``gated_linear_attention`` of W_Q x, W_K x, W_V x and decays a, at least exp(``LOWEST``):

    - "vector": a = sigmoid(W_2 W_1 x + b)^(1/16), one per dimension of a key: section 4.4.
    - "scalar": a = exp(-e^r softplus(w x + b)), one per head, r being learned: Dao and Gu 2024, section 7.
    - "fixed": a = 1 - 2^(-5 - h) for head h = 0, 1, ... of a direction: Sun et al. 2023, eq. 8.

    Keys are half as wide as ``head_size``. All matrices but those of the decays have biases if the config
    says so. In an encoder the second half of the heads reads backwards.

    Gradients are ill-conditioned where o is tiny, since norm(o) then amplifies any rounding of its inputs: at
    the first word o = (q . k) v. Those of fresh models under bfloat16 autocast are off by 4 to 98% of their
    norm (benchmarks/LOG.md); fp32 here does not help, as the inputs are rounded too.
    """

    def __init__(
        self, config: LayerConfig, *, bidirectional: bool, state_decay: StateDecay = "vector"
    ) -> None:
        super().__init__()
        self.num_heads, self.is_bidirectional = config.num_heads, bidirectional
        key_size = self.num_heads * -(-config.query_size // 2)
        self.sizes = [key_size, key_size, config.values_size, config.values_size]
        self.project_in = nn.Linear(config.d_model, sum(self.sizes), bias=config.bias)
        self.decay: nn.Module | None = None
        self.log_rate: nn.Parameter | None = None
        if state_decay == "vector":
            self.decay = nn.Sequential(nn.Linear(config.d_model, RANK, bias=False), nn.Linear(RANK, key_size))
        elif state_decay == "scalar":
            self.decay = nn.Linear(config.d_model, self.num_heads)
            self.log_rate = nn.Parameter(torch.full((self.num_heads,), -math.log(TEMPERATURE)))
        self.norm = nn.LayerNorm(config.values_size // self.num_heads, bias=config.bias)
        self.project_out = nn.Linear(config.values_size, config.d_model, bias=config.bias)

    def forward(self, x: Tensor, relation: Relation) -> Tensor:
        """Read x (B, T, D); the mask (B, 1, 1, T) says which tokens are real, None: all are."""
        queries, keys, values, log_decay, gate = self._project(x)
        if relation.mask is not None:
            padding = ~relation.mask.transpose(1, 3)
            keys, log_decay = keys.masked_fill(padding, 0), log_decay.masked_fill(padding, 0)
        parts = (self._turn(part).transpose(1, 2) for part in (queries, keys, values, log_decay))
        return self._finish(self._turn(gated_linear_attention(*parts).transpose(1, 2)), gate)

    def empty_cache(self, _: Tensor, sentences: int, beam: int, capacity: int) -> RecurrentCache:
        """Return the state before the first token: zeros, (B, K, H, E, F), in at least fp32."""
        weight, widths = self.project_out.weight, (self.sizes[0], self.sizes[2])
        shape = (sentences, beam, self.num_heads, *(width // self.num_heads for width in widths))
        dtype = torch.promote_types(weight.dtype, torch.float32)
        return RecurrentCache((weight.new_zeros(shape, dtype=dtype),))

    def step(self, x: Tensor, cache: RecurrentCache, relation: Relation) -> Tensor:
        """Read the next token x (B, K, D) of each hypothesis; ``cache`` then has the next state."""
        query, key, value, log_decay, gate = self._project(x)
        state = log_decay.exp().unsqueeze(-1) * cache.state[0] + key.unsqueeze(-1) * value.unsqueeze(-2)
        cache.state, cache.length = (state,), cache.length + 1
        return self._finish((query.unsqueeze(-1) * state).sum(-2), gate)

    def _project(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys, values, log decays and gates, (..., H, width) each, all but gates in fp32."""
        *parts, gate = self.project_in(x).split(self.sizes, -1)
        dtype = torch.promote_types(x.dtype, torch.float32)
        parts = [part.to(dtype) for part in (*parts, self._log_decay(x, dtype))]
        return [part.unflatten(-1, (self.num_heads, -1)) for part in (*parts, gate)]

    def _log_decay(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return log a for x (..., D): (..., H * E), or (..., H) for one a per head."""
        if self.decay is None:
            heads = torch.arange(self.num_heads, device=x.device, dtype=dtype)
            heads = heads % (self.num_heads // 2) if self.is_bidirectional else heads
            return (-(2 ** (-5 - heads))).log1p().expand(*x.shape[:-1], -1)
        gates = self.decay(x).to(dtype)
        if self.log_rate is None:
            return (F.logsigmoid(gates) / TEMPERATURE).clamp(min=LOWEST)
        return (-self.log_rate.exp() * F.softplus(gates)).clamp(min=LOWEST)

    def _turn(self, x: Tensor) -> Tensor:
        """Reverse the positions of the second half of the heads of x (B, T, H, width), in an encoder."""
        if not self.is_bidirectional:
            return x
        forward, backward = x.chunk(2, dim=2)
        return torch.cat((forward, backward.flip(1)), dim=2)

    def _finish(self, contexts: Tensor, gate: Tensor) -> Tensor:
        output: Tensor = self.project_out((self.norm(contexts.to(gate.dtype)) * F.silu(gate)).flatten(-2))
        return output
