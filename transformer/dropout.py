"""Dropout: Srivastava et al. 2014."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16
"""Values of the 16 random bits that decide on an entry."""


class Dropout(nn.Module):
    """Zeroes entries with ``probability`` in training, and scales the others so that means are kept.

    torch draws a 64-bit number for every entry on one thread, 4 ns each, which was 12% of a training update;
    on a CPU each such number is here good for four entries, the probability a multiple of 1 / 65,536.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        if not self.training or self.probability == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.probability)
        dropped: Tensor = _MaskAndScale.apply(x, min(LEVELS - 1, round(self.probability * LEVELS)))  # type: ignore[no-untyped-call]
        return dropped


class _MaskAndScale(torch.autograd.Function):
    """Keeps a byte an entry for the way back, and goes over the numbers once in each direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, level: int) -> Tensor:
        drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        bits = drawn.view(torch.int16)[: x.numel()].view(x.shape)
        ctx.kept, ctx.scale = bits >= level - LEVELS // 2, LEVELS / (LEVELS - level)
        return torch.mul(x, ctx.kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.mul(grad, ctx.kept).mul_(ctx.scale), None
