"""The optimizer and its learning-rate schedules."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda after, left: 1.0,
    "inverse-sqrt": lambda after, left: after**-0.5,
    "linear": lambda after, left: left,
    "cosine": lambda after, left: 0.5 * (1 - math.cos(math.pi * left)),
}
"""Factor of the learning rate after warm-up, from update / warm-up updates (at least 1) and the share of
the updates after warm-up that is still left (1 to 0)."""


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How one model learns; a model may need its own (DESIGN: "its best known implementation")."""

    learning_rate: float = 1e-3
    """Peak learning rate of AdamW (Loshchilov and Hutter 2019; Adam where weight_decay is 0)."""
    schedule: str = "linear"
    """constant, inverse-sqrt, linear (to 0) or cosine (to 0), after a linear warm-up."""
    warmup_updates: int = 100
    """Updates of linear warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    beta2: float = 0.98
    """Decay of the squared gradients' average (0.98 in Vaswani et al. 2017)."""

    def __post_init__(self) -> None:
        """Reject what would fail or diverge only once training has begun."""
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, found {self.schedule!r}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be positive and finite, found {self.learning_rate}")
        if self.warmup_updates < 0:
            raise ValueError(f"warmup_updates must be at least 0, found {self.warmup_updates}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0 and finite, found {self.weight_decay}")
        if not 0 < self.beta2 < 1:
            raise ValueError(f"beta2 must be between 0 and 1, found {self.beta2}")


def learning_rate(config: OptimConfig, update: int, max_updates: int) -> float:
    """The rate of the given update, counted from 1."""
    if update <= config.warmup_updates:
        return config.learning_rate * update / config.warmup_updates
    after = update / max(1, config.warmup_updates)
    left = (max_updates - update + 1) / (max_updates - min(config.warmup_updates, max_updates - 1))
    return config.learning_rate * SCHEDULES[config.schedule](after, left)


def build_optimizer(parameters: Iterable[nn.Parameter], config: OptimConfig) -> torch.optim.Optimizer:
    """AdamW in its fused form, which does one pass over each parameter."""
    return torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        eps=1e-9,
        weight_decay=config.weight_decay,
        fused=True,
    )
