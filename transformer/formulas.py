"""The formulas of the Transformers, one sentence and one head at a time, in the order of the papers.

This file is for reading: the modules of this package compute the same for padded batches and all heads at
once, and the tests compare every configuration with these functions in float64, value and gradient.

Shapes: x (N, D) are the vectors of a sentence, q (N, E) queries, k (M, E) keys, v (M, F) values of one head,
e (N, M) scores, a (N, M) attention weights. Matrices are (outputs, inputs).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Layer = Callable[[Tensor], Tensor]

# Attention.


def softmax(e: Tensor) -> Tensor:
    """Return a_ij = exp(e_ij) / sum_k exp(e_ik)."""
    likelihood = torch.exp(e - e.max(-1, keepdim=True).values.detach())
    return likelihood / likelihood.sum(-1, keepdim=True)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)) V: Vaswani et al. 2017, eq. 1."""
    return softmax(scaled_scores(q, k)) @ v


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return e = Q K^T / sqrt(d_k): Vaswani et al. 2017, eq. 1."""
    return q @ k.T / math.sqrt(q.size(1))


def unscaled_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return e = Q K^T, without the scale of Vaswani et al. 2017, section 3.2.1."""
    return q @ k.T


def qk_norm_scores(q: Tensor, k: Tensor, g: Tensor) -> Tensor:
    """Return e_ij = g q_i . k_j / (|q_i| |k_j|): Henry et al. 2020, section 3."""
    q, k = (x / (x**2).sum(-1, keepdim=True).sqrt() for x in (q, k))
    return g * (q @ k.T)


def hard_weights(e: Tensor) -> Tensor:
    """Return one-hot(arg max e) with the gradient of the softmax: Bengio et al. 2013, section 4."""
    soft = softmax(e)
    return torch.nn.functional.one_hot(e.argmax(-1), e.size(-1)) + soft - soft.detach()


def linear_weights(q: Tensor, k: Tensor) -> Tensor:
    """Return f(q_i) . f(k_j), not normalised, f(x) = elu(x) + 1: Katharopoulos et al. 2020, eq. 7.

    Divided by their sum over the keys that a query may see, these are its weights.
    """
    q, k = (torch.where(x > 0, x + 1, torch.exp(x)) for x in (q, k))
    return q @ k.T


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """Return o_t = S_t^T q_t of S_t = diag(a_t) S_t-1 + k_t v_t^T, S_0 = 0: Yang et al. 2024, section 4.1."""
    state, o = torch.zeros(k.size(1), v.size(1), dtype=v.dtype), []
    for q_t, k_t, v_t, a_t in zip(q, k, v, a, strict=True):
        state = torch.diag(a_t) @ state + torch.outer(k_t, v_t)
        o.append(state.T @ q_t)
    return torch.stack(o)


def decays(x: Tensor, w_1: Tensor, w_2: Tensor, b: Tensor) -> Tensor:
    """Return a_t = sigmoid(W_2 W_1 x_t + b)^(1/16), at least e^-4: Yang et al. 2024, section 4.4."""
    return (torch.sigmoid(x @ w_1.T @ w_2.T + b) ** (1 / 16)).clamp(min=math.exp(-4))


def scalar_decays(x: Tensor, w: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """Return exp(-e^a softplus(w . x_t + b)) of one head, at least e^-4: Dao and Gu 2024, section 7."""
    return torch.exp(-torch.exp(a) * torch.log1p(torch.exp(x @ w + b))).clamp(min=math.exp(-4))


def fixed_decay(head: int) -> float:
    """Return 1 - 2^(-5 - h) of a head, counted from 0: Sun et al. 2023, section 2.2, eq. 8."""
    return 1 - 2.0 ** (-5 - head)


def gated_heads(heads: list[Tensor], r: Tensor, w_o: Tensor, norm: Layer) -> Tensor:
    """Return ([norm(o^1); ...; norm(o^h)] * r sigmoid(r)) W_O: Yang et al. 2024, section 4.4."""
    return (torch.cat([norm(o) for o in heads], dim=1) * r * torch.sigmoid(r)) @ w_o.T


def causal(length: int) -> Tensor:
    """Return whether position i may see j, j <= i: Vaswani et al. 2017, section 3.2.3."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def project(x: Tensor, m: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q = X W_Q, K = M W_K, V = M W_V of one head: Vaswani et al. 2017, section 3.2.2.

    In self-attention M is X, and W_K may be W_Q (Kitaev et al. 2020, section 2). Without projections all
    three, and W_O, are the identity.
    """
    return x @ w_q.T, m @ w_k.T, m @ w_v.T


def multi_head(heads: list[Tensor], w_o: Tensor) -> Tensor:
    """Return [head_1; ...; head_h] W_O: Vaswani et al. 2017, section 3.2.2."""
    return torch.cat(heads, dim=1) @ w_o.T


# Positions.


def sinusoid(n: int, size: int) -> Tensor:
    """Return sin and cos of n / 10000^(2 i / D) in turn: Vaswani et al. 2017, section 3.5."""
    angles = n / 10000 ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.stack((torch.sin(angles), torch.cos(angles)), dim=1).flatten()


def scaled_embedding(row: Tensor) -> Tensor:
    """Return the embedding times sqrt(D): Vaswani et al. 2017, section 3.4."""
    return row * math.sqrt(len(row))


def rotary(x: Tensor, n: int) -> Tensor:
    """Turn each pair of numbers, read as a complex one, by n theta_i: Su et al. 2021, eq. 13."""
    theta = 10000 ** (-torch.arange(0, len(x), 2, dtype=torch.float64) / len(x))
    turned = torch.view_as_complex(x.reshape(-1, 2)) * torch.exp(1j * n * theta)
    return torch.view_as_real(turned).flatten()


def alibi_slope(head: int, heads: int) -> float:
    """Return m of a head, counted from 0: Press et al. 2022, section 3, and their code for other numbers."""
    whole = 2 ** math.floor(math.log2(heads))
    if head < whole:
        return float((2 ** (-8 / whole)) ** (head + 1))
    return float((2 ** (-8 / (2 * whole))) ** (2 * (head - whole) + 1))


def alibi(e: Tensor, slope: float) -> Tensor:
    """Return e_ij - m |i - j|: Press et al. 2022, section 3."""
    rows, columns = torch.arange(e.size(0)).unsqueeze(1), torch.arange(e.size(1))
    return e - slope * (rows - columns).abs()


def t5_bucket(distance: int, limit: int, buckets: int = 32) -> int:
    """Return the range that a distance >= 0 is in, single ones first: Raffel et al. 2020, section 2.1."""
    single = buckets // 2
    if distance < single:
        return distance
    return min(single + int(math.log(distance / single) / math.log(limit / single) * single), buckets - 1)


def kv_head(head: int, heads: int, kv_heads: int) -> int:
    """Return the head of keys and values of a head of queries: Ainslie et al. 2023, figure 2."""
    return head // (heads // kv_heads)


def relative_index(i: int, length: int, limit: int) -> Tensor:
    """Return clip(j - i, k) + k, the row of the vectors of distances, by j: Shaw et al. 2018, eq. 3 and 4."""
    return (torch.arange(length) - i).clamp(-limit, limit) + limit


# Norms, feed-forward layers, residual connections.


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return g (x - mean) / sqrt(variance + epsilon) + b of each row: Ba et al. 2016, eq. 4."""
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + epsilon) + bias


def rms_norm(x: Tensor, gain: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Return g x / sqrt(mean of x^2 + epsilon) of each row: Zhang and Sennrich 2019, eq. 4."""
    return gain * x / torch.sqrt((x**2).mean(-1, keepdim=True) + epsilon)


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0): Vaswani et al. 2017, eq. 2."""
    return x.clamp(min=0)


def gelu(x: Tensor) -> Tensor:
    """Return x times the normal distribution function of x: Hendrycks and Gimpel 2016, section 2."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def swiglu(x: Tensor) -> Tensor:
    """Return g sigmoid(g) u, g and u the halves of x: Shazeer 2020, eq. 6."""
    gate, linear = x.chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * linear


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, f: Layer) -> Tensor:
    """Return f(x W_1 + b_1) W_2 + b_2: Vaswani et al. 2017, eq. 2."""
    return f(x @ w_1.T + b_1) @ w_2.T + b_2


def pre_norm(x: Tensor, sublayer: Layer, norm: Layer) -> Tensor:
    """Return x + dropout(Sublayer(LN(x))), here without dropout: Xiong et al. 2020, figure 1b."""
    return x + sublayer(norm(x))


def post_norm(x: Tensor, sublayer: Layer, norm: Layer) -> Tensor:
    """Return LN(x + dropout(Sublayer(x))), here without dropout: Vaswani et al. 2017, section 3.1."""
    return norm(x + sublayer(x))


def no_norm(x: Tensor, sublayer: Layer, norm: Layer) -> Tensor:
    """Return x + dropout(Sublayer(x)), here without dropout: a Transformer without norms."""
    return x + sublayer(x)


# Layers: ``around`` is one of the three residual connections above, with one norm per sublayer.


def encoder_layer(
    x: Tensor, attend: Layer, ffn: Layer, norms: list[Layer], around: Callable[..., Tensor]
) -> Tensor:
    """Attend to the sentence itself, then apply the feed-forward layer: Vaswani et al. 2017, section 3.1."""
    x = around(x, attend, norms[0])
    return around(x, ffn, norms[1])


def decoder_layer(
    x: Tensor, attend: Layer, cross: Layer, ffn: Layer, norms: list[Layer], around: Callable[..., Tensor]
) -> Tensor:
    """Attend to the words before, then to the source: Vaswani et al. 2017, section 3.1."""
    x = around(x, attend, norms[0])
    x = around(x, cross, norms[1])
    return around(x, ffn, norms[2])
