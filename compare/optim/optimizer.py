"""The optimizer: AdamW."""

from collections.abc import Iterable

import torch
from torch import nn

from compare.optim.config import OptimConfig


def build_optimizer(parameters: Iterable[nn.Parameter], config: OptimConfig) -> torch.optim.Optimizer:
    """Build AdamW (Loshchilov and Hutter 2019), fused into one pass over each parameter."""
    return torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        eps=1e-9,
        weight_decay=config.weight_decay,
        fused=True,
    )
