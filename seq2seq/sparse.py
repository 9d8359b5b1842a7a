"""Sparsemax and 1.5-entmax, sparse relatives of the softmax, computed exactly by sorting.

Both are the distribution p that maximises p . z + H(p), each for a Tsallis entropy H of its own; the softmax
is that of Shannon's entropy. Entries far enough below the largest one get a probability of exactly 0.

Shapes: n entries z in the last dimension; -inf marks entries that are left out.
"""

from typing import Any

import torch
from torch import Tensor


def sparsemax(z: Tensor) -> Tensor:
    """Return max(z - tau, 0), tau being such that the sum is 1: Martins and Astudillo 2016, eq. 2 to 4."""
    p: Tensor = _Sparsemax.apply(z)  # type: ignore[no-untyped-call]
    return p


def entmax15(z: Tensor) -> Tensor:
    """Return max(z / 2 - tau, 0)^2, tau being such that the sum is 1: Peters et al. 2019, section 3."""
    p: Tensor = _Entmax15.apply(z)  # type: ignore[no-untyped-call]
    return p


def cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(-1) of finite x, (..., n); torch's own has no deterministic form on a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return _sum_prefixes(x)
    return x.cumsum(-1)


def _sum_prefixes(x: Tensor) -> Tensor:
    """Compute ``cumulative_sum`` as n sums of n entries."""
    prefixes = torch.ones(x.size(-1), x.size(-1), dtype=x.dtype, device=x.device).tril()
    return (x.unsqueeze(-2) * prefixes).sum(-1)


def _shift(z: Tensor) -> Tensor:
    """Shift the largest z to 0 and raise all below -2 to it; tau is at least -1, so these get 0 anyway."""
    return (z - z.amax(-1, keepdim=True)).clamp(min=-2)


def _sorted_prefixes(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return z in descending order and the lengths 1 to n of its prefixes."""
    return z.sort(-1, descending=True).values, torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = _shift(z)
        ordered, lengths = _sorted_prefixes(z)
        sums = cumulative_sum(ordered) - 1
        support = (lengths * ordered > sums).sum(-1, keepdim=True)
        p = (z - sums.gather(-1, support - 1) / support).clamp(min=0)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Subtract the mean over the support, there: Martins and Astudillo 2016, eq. 14."""
        (p,) = ctx.saved_tensors
        support = (p > 0).to(grad.dtype)
        mean = (grad * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        result: Tensor = support * (grad - mean)
        return result


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = _shift(z / 2)
        ordered, lengths = _sorted_prefixes(z)
        mean = cumulative_sum(ordered) / lengths
        variance = (cumulative_sum(ordered.square()) / lengths - mean.square()).clamp(min=0)
        tau = mean - (1 / lengths - variance).clamp(min=0).sqrt()
        support = (tau <= ordered).sum(-1, keepdim=True)
        p = (z - tau.gather(-1, support - 1)).clamp(min=0).square()
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Multiply by diag(r) - r r^T / sum r, r being the roots of p: Peters et al. 2019, section 3.2."""
        (p,) = ctx.saved_tensors
        root = p.where(p > 0, 1).sqrt() * (p > 0)  # so that a second derivative is 0 where p is 0, not NaN
        mean = (grad * root).sum(-1, keepdim=True) / root.sum(-1, keepdim=True)
        result: Tensor = root * (grad - mean)
        return result
