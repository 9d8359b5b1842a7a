"""Sparsemax and 1.5-entmax, sparse relatives of the softmax, computed exactly by sorting.

Both are the distribution p that maximises p . z + H(p), each for a Tsallis entropy H of its own; the softmax
is that of Shannon's entropy. Entries far enough below the largest one get a probability of exactly 0.

Both find the entries above tau, the support, by sorting, and then compute tau from these alone, so that
autograd gives all derivatives.

Shapes: n entries z in the last dimension; -inf marks entries that are left out.
"""

import torch
from torch import Tensor


def sparsemax(z: Tensor) -> Tensor:
    """Return max(z - tau, 0), tau being such that the sum is 1: Martins and Astudillo 2016, eq. 2 to 4."""
    z, ordered, lengths = _shift_and_sort(z)
    support = _find_support(z, ordered, (cumulative_sum(ordered) - 1) / lengths)
    tau = ((z * support).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
    return (z - tau).clamp(min=0) * support


def entmax15(z: Tensor) -> Tensor:
    """Return max(z / 2 - tau, 0)^2, tau being such that the sum is 1: Peters et al. 2019, section 3."""
    z, ordered, lengths = _shift_and_sort(z / 2)
    mean = cumulative_sum(ordered) / lengths
    variance = cumulative_sum(ordered.square()) / lengths - mean.square()
    support = _find_support(z, ordered, mean - (1 / lengths - variance).clamp(min=0).sqrt())
    size = support.sum(-1, keepdim=True, dtype=z.dtype)
    mean = (z * support).sum(-1, keepdim=True) / size
    variance = ((z - mean).square() * support).sum(-1, keepdim=True) / size
    tau = mean - (1 / size - variance).sqrt()  # at least 1 / size below the mean
    return ((z - tau).clamp(min=0) * support).square()


def cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(-1) of finite x, (..., n); torch's own has no deterministic form on a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return _sum_prefixes(x)
    return x.cumsum(-1)


def _sum_prefixes(x: Tensor) -> Tensor:
    """Compute ``cumulative_sum`` as n sums of n entries."""
    prefixes = torch.ones(x.size(-1), x.size(-1), dtype=x.dtype, device=x.device).tril()
    return (x.unsqueeze(-2) * prefixes).sum(-1)


def _shift_and_sort(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return z with the largest at 0, z in descending order, and the lengths 1 to n of its prefixes.

    All below -2 are raised to it; tau is at least -1, so these get 0 anyway.
    """
    z = (z - z.detach().amax(-1, keepdim=True)).clamp(min=-2)
    lengths = torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)
    return z, z.detach().sort(-1, descending=True).values, lengths


def _find_support(z: Tensor, ordered: Tensor, tau: Tensor) -> Tensor:
    """Return which z are above tau, given for each prefix; the last one that is below its entry is right."""
    size = (tau < ordered).sum(-1, keepdim=True)
    return z > tau.gather(-1, size - 1)
