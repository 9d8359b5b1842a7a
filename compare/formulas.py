"""The formulas of training, search and scoring, on plain tensors and numbers.

This file is for reading: training and search compute the same in chunks, batches and beams, and the tests
compare them with these functions.

Shapes: logits (T, V) of one sentence, ids y (T,) of its reference.
"""

import math

import torch
from torch import Tensor

# Losses.


def log_softmax(logits: Tensor) -> Tensor:
    """Return log p of every token, (T, V)."""
    return logits - torch.logsumexp(logits, dim=-1, keepdim=True)


def label_smoothing(logits: Tensor, y: Tensor, epsilon: float) -> Tensor:
    """Return the cross-entropy against 1 - e on the reference plus e / V on all: Szegedy et al. 2016, 7."""
    logp = log_softmax(logits)
    reference = logp[torch.arange(len(y)), y]
    return -((1 - epsilon) * reference + epsilon * logp.mean(dim=1)).sum()


def kl_divergence(logits: Tensor, other: Tensor) -> Tensor:
    """Return KL(p || q) = sum of p (log p - log q) over tokens and positions."""
    logp, logq = log_softmax(logits), log_softmax(other)
    return (logp.exp() * (logp - logq)).sum()


def r_drop(logits: Tensor, second: Tensor, y: Tensor, epsilon: float, alpha: float) -> Tensor:
    """Return the mean of both losses plus alpha times that of both divergences, of passes with other dropout.

    Half of Liang et al. 2021, eq. 4, with half its alpha, so that the learning rate keeps its meaning.
    """
    losses = label_smoothing(logits, y, epsilon) + label_smoothing(second, y, epsilon)
    divergences = kl_divergence(logits, second) + kl_divergence(second, logits)
    return losses / 2 + alpha * divergences / 2


def simcut(logits: Tensor, cut: Tensor, y: Tensor, epsilon: float, alpha: float) -> Tensor:
    """Return the loss plus alpha KL(p || q), q predicted with some words cut: Gao et al. 2022, eq. 5."""
    return label_smoothing(logits, y, epsilon) + alpha * kl_divergence(logits, cut)


def perplexity(logits: Tensor, y: Tensor) -> Tensor:
    """Return exp of the mean negative log-likelihood per token."""
    return torch.exp(label_smoothing(logits, y, 0.0) / len(y))


# Optimizer and schedules.


def noam_rate(update: int, d_model: int, warmup: int) -> float:
    """Return D^-0.5 min(n^-0.5, n w^-1.5): Vaswani et al. 2017, eq. 3.

    Schedule "inverse-sqrt" with the learning rate (D w)^-0.5, which is the peak.
    """
    return float(d_model**-0.5 * min(update**-0.5, update * warmup**-1.5))


def warmup_rate(update: int, peak: float, warmup: int) -> float:
    """Return the rate of an update of the linear warm-up, n / w of the peak."""
    return peak * update / warmup


def linear_rate(update: int, peak: float, warmup: int, last: int) -> float:
    """Return the rate that falls linearly, to 0 one update after the last."""
    return peak * (last + 1 - update) / (last - warmup)


def stable_rate(update: int, peak: float, last: int, decay: float) -> float:
    """Return the peak, which falls linearly to 0 over the last share ``decay`` of the updates."""
    return peak * min(1.0, (last + 1 - update) / (decay * last))


def muon(w: Tensor, g: Tensor, m: Tensor, rate: float, decay: float) -> tuple[Tensor, Tensor]:
    """Return the weights and the momentum after a step of Muon: Jordan 2024; scale of Liu et al. 2025, eq. 4.

    The orthogonal factor U V' of the singular value decomposition is exact here; the optimizer approximates
    it by five Newton-Schulz iterations, whose singular values lie between about 0.7 and 1.2.
    """
    m = 0.95 * m + 0.05 * g
    u, _, v = torch.linalg.svd(0.95 * m + 0.05 * g, full_matrices=False)
    return (1 - rate * decay) * w - rate * 0.2 * max(w.shape) ** 0.5 * (u @ v), m


def cosine_rate(update: int, peak: float, warmup: int, last: int) -> float:
    """Return the rate that falls along half a cosine: Loshchilov and Hutter 2017, eq. 5, without restarts."""
    left = (last + 1 - update) / (last - warmup)
    return peak * (1 - math.cos(math.pi * left)) / 2


def adamw(
    w: Tensor, g: Tensor, m: Tensor, v: Tensor, update: int, rate: float, beta2: float, decay: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return w, m and v after an update with gradient g: Loshchilov and Hutter 2019, algorithm 2.

    beta1 = 0.9 and epsilon = 1e-9, as in Vaswani et al. 2017, section 5.3.
    """
    m, v = 0.9 * m + 0.1 * g, beta2 * v + (1 - beta2) * g**2
    m_hat, v_hat = m / (1 - 0.9**update), v / (1 - beta2**update)
    return w - rate * (m_hat / (torch.sqrt(v_hat) + 1e-9) + decay * w), m, v


def moving_average(weights: list[Tensor], decay: float) -> Tensor:
    """Return the average of the weights of all updates, bias corrected: Kingma and Ba 2015, section 7.2."""
    shares = [decay ** (len(weights) - 1 - i) for i in range(len(weights))]
    return torch.stack([share * w for share, w in zip(shares, weights, strict=True)]).sum(0) / sum(shares)


def clip(g: Tensor, norm: float) -> Tensor:
    """Return g scaled down to this norm if it is longer: Pascanu et al. 2013, algorithm 1."""
    return g * min(1.0, norm / float(g.norm()))


# Search.


def wu_penalty(length: int, alpha: float) -> float:
    """Return what a log-probability is divided by, ((5 + length) / 6)^alpha: Wu et al. 2016, eq. 14."""
    return float(((5 + length) / 6) ** alpha)


def length_penalty(length: int, alpha: float) -> float:
    """Return length^alpha; with alpha 1 hypotheses are ranked by their mean log-probability per token."""
    return float(length**alpha)


def beam_step(scores: Tensor, logp: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best ``size`` continuations: their scores, the hypotheses continued and the new tokens.

    Graves 2012, section 4: scores (K,) of the hypotheses plus logp (K, V) of each next token.
    """
    sums = (scores.unsqueeze(1) + logp).flatten()
    best, index = sums.sort(descending=True, stable=True)
    return best[:size], index[:size] // logp.size(1), index[:size] % logp.size(1)


def ensemble(logits: list[Tensor]) -> Tensor:
    """Return the log of the mean probability of several models."""
    return torch.stack([log_softmax(member).exp() for member in logits]).mean(0).log()


# Scores.


def alignment_error_rate(
    proposed: set[tuple[int, int]], sure: set[tuple[int, int]], possible: set[tuple[int, int]]
) -> float:
    """Return 1 - (|A and S| + |A and P|) / (|A| + |S|): Och and Ney 2003, eq. 6; S is a part of P."""
    return 1 - (len(proposed & sure) + len(proposed & possible)) / (len(proposed) + len(sure))
