"""The recurrence h(t) = a(t) * h(t-1) + b(t), all time steps at once.

Two neighbouring steps are one step of the same form: a = a2 * a1 and b = a2 * b1 + b2. This combination is
associative, so ceil(log2(T)) rounds, each over all steps in parallel, compute all h (Hillis and Steele 1986;
Blelloch 1990). With a between 0 and 1 no product can overflow, and one that becomes 0 in floating point was
to add next to nothing. Sums of logarithms (Feng et al. 2024, appendix B) would need b > 0, and subtract large
numbers from each other where a sentence is long, which costs digits.

Shapes: T time steps, N batch rows, H features.
"""

from typing import Any

import torch
from torch import Tensor

from .tracing import is_traced


def linear_scan(decay: Tensor, added: Tensor) -> Tensor:
    """Compute h(t) = a(t) * h(t-1) + b(t) from h(0) = b(0), with all derivatives.

    The result for a step is rounded the same, whatever follows it.

    Args:
        decay: a, between 0 and 1, (T, N, H); the first is not read.
        added: b, (T, N, H).

    Returns:
        h, (T, N, H).
    """
    if torch.compiler.is_exporting():
        return _scan_any_length(decay, added)
    if is_traced():
        return _combine(decay, added)
    result: Tensor = _LinearScan.apply(decay, added)  # type: ignore[no-untyped-call]
    return result


def _combine(decay: Tensor, added: Tensor) -> Tensor:
    """Combine each step with the one before it, then each pair with the pair before it, and so on."""
    steps, distance = added.size(0), 1
    while distance < steps:
        later = decay[distance:]
        added = torch.cat((added[:distance], torch.addcmul(added[distance:], later, added[:-distance])))
        if 2 * distance < steps:
            decay = torch.cat((decay[:distance], later * decay[:-distance]))
        distance *= 2
    return added


class _LinearScan(torch.autograd.Function):
    """The backward pass is a scan from the right, so that nothing of the rounds has to be kept."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, added: Tensor) -> Tensor:
        h = _combine(decay, added)
        ctx.save_for_backward(decay, h)
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        decay, h = ctx.saved_tensors
        # d(t) = grad(t) + a(t+1) d(t+1); the first factor of the reversed sequence is not read.
        factors = torch.cat((decay[:1], decay[1:].flip(0)))
        d = linear_scan(factors, grad.flip(0)).flip(0)
        return torch.cat((torch.zeros_like(d[:1]), d[1:] * h[:-1])), d


def _scan_any_length(decay: Tensor, added: Tensor) -> Tensor:
    """Compute ``linear_scan`` step by step, for any T: torch.export would fix the number of rounds."""
    from torch._higher_order_ops.scan import scan  # a prototype in torch 2.13, which has no other loop

    def step(h: Tensor, parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h = parts[0] * h + parts[1]
        return h, h.clone()

    outputs: Tensor = scan(step, torch.zeros_like(added[0]), (decay, added))[1]
    return outputs
